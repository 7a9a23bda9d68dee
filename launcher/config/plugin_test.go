package config

import (
	"fmt"
	"strings"
	"testing"
)

const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// TestPluginSaysWhatToWrite: path and checksum as people have them at hand.
func TestPluginSaysWhatToWrite(t *testing.T) {
	for _, test := range []struct{ path, sha256, want string }{
		{"/opt/p", emptySHA256, ""},
		{"~/p", " " + strings.ToUpper(emptySHA256) + " ", ""},
		{"bin/p", emptySHA256, `such as "~/bin/p"`},
		{"./p", emptySHA256, `such as "~/p"`},
		{"$HOME/p", emptySHA256, `write "~/p"`},
		{"~bob/p", emptySHA256, "another user's home in full"},
		{"~", emptySHA256, `such as "~/prober"`},
		{"/opt/", emptySHA256, `such as "/opt/prober"`},
		{"", emptySHA256, "path is empty"},
		{"/opt/p", emptySHA256[1:], "this one has 63. To get it, run `sha256sum /opt/p`"},
		{"/opt/p", "", "this one has 0."},
		{"/opt/p", emptySHA256[1:] + "x", "this one has other characters"},
		{"/opt/p", emptySHA256 + "  /opt/p", `write "` + emptySHA256 + `"`},
		{"/opt/p", "sha256:" + emptySHA256, `write "` + emptySHA256 + `"`},
	} {
		text := fmt.Appendf(nil, "job \"x\" {\n command = [\"x\"]\n hosts \"local\" {}\n plugin \"p\" {\n  path = %q\n  sha256 = %q\n }\n}", test.path, test.sha256)
		src := Source{Filename: "job.hcl", Text: text}
		job, diags := src.Evaluate()
		switch {
		case test.want == "" && (job == nil || len(diags) > 0 || job.Plugin.SHA256 != emptySHA256),
			test.want != "" && (len(diags) != 1 || !strings.Contains(diags[0].Detail, test.want)):
			t.Errorf("%q %q gives\n%swant %s", test.path, test.sha256, printed(src, diags), test.want)
		}
	}
}
