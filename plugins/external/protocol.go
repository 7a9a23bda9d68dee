package external

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/muster-dev/muster/plugins/external/pluginpb"
)

// ProtocolVersion is the version of the protocol between muster and plugins. It is raised when
// muster could no longer understand an old plugin; new calls and new members do not need that.
const ProtocolVersion = 1

// The cookie tells a program that muster started it, and not somebody by hand.
const (
	cookieKey   = "MUSTER_PLUGIN"
	cookieValue = "device-plugin"
)

var handshake = goplugin.HandshakeConfig{
	ProtocolVersion: ProtocolVersion, MagicCookieKey: cookieKey, MagicCookieValue: cookieValue,
}

// service is the one thing that a plugin serves, under this name for go-plugin.
const service = "muster"

// adapter is the plugin as go-plugin wants it, at both ends.
type adapter struct {
	goplugin.NetRPCUnsupportedPlugin
	server pluginpb.PluginServer // at the plugin's end
}

var _ goplugin.GRPCPlugin = (*adapter)(nil)

// GRPCServer registers the plugin.
func (a *adapter) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	pluginpb.RegisterPluginServer(s, a.server)
	return nil
}

// GRPCClient returns a pluginpb.PluginClient.
func (a *adapter) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return pluginpb.NewPluginClient(conn), nil
}

// misfit says what is wrong with a program's first line; "": it is a plugin's. The line is
// CORE|VERSION|NETWORK|ADDRESS|PROTOCOL|CERTIFICATE.
func (p Program) misfit(line string) string {
	fields := strings.Split(line, "|")
	core, err := strconv.Atoi(fields[0])
	switch {
	case err != nil || len(fields) < 4:
		return "it is no plugin of muster, or prints before it calls Serve: its first line is " + quote(line)
	case core != goplugin.CoreProtocolVersion:
		return fmt.Sprintf("it does the handshake of go-plugin in version %s, this muster in version %d: build it with this "+
			"muster's version of go-plugin", cut(fields[0], 20), goplugin.CoreProtocolVersion)
	case fields[1] != strconv.Itoa(ProtocolVersion):
		return fmt.Sprintf("it speaks version %s of muster's plugin protocol, this muster version %d: install the plugin, or "+
			"the muster, that fits the other", cut(fields[1], 20), ProtocolVersion)
	case len(fields) < 5 || fields[4] != string(goplugin.ProtocolGRPC):
		return "it is a plugin, but does not speak gRPC: its first line is " + quote(line)
	}
	return ""
}
