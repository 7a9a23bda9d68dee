package config

import "github.com/hashicorp/hcl/v2/hclsyntax"

var hostSchema = schema{
	where: "a host block",
	attrs: []attrSchema{
		{name: "user"},
		{name: "port"},
		{name: "workdir"},
		{name: "setup"},
		{name: "env"},
	},
	blocks: []blockSchema{{name: "ranks"}},
}

// override applies a host block to the host it is for.
func (d *decoder) override(host *Host, block *hclsyntax.Block) {
	c := d.content(block.Body, block.DefRange(), hostSchema)
	d.overrideAddress(host, c)
	if attr := c.attrs["workdir"]; d.isSet(attr) {
		host.Workdir = d.path(attr)
	}
	if attr := c.attrs["setup"]; d.isSet(attr) {
		host.Setup = d.string(attr)
	}
	host.env = d.envExpr(c.attrs["env"])
	d.overrideRanks(host, first(c.blocks["ranks"]))
}

// overrideAddress applies user and port. What the host block says wins over what
// names says.
func (d *decoder) overrideAddress(host *Host, c content) {
	if attr := c.attrs["user"]; d.isSet(attr) {
		user := d.string(attr)
		if err := checkUser(user); err != nil {
			d.error(d.within(attr.Expr, err.Offset, err.Length), "Invalid user", "%s.", capital(err.Problem))
		}
		if host.User != "" && user != "" && user != host.User {
			d.warn(attr.Expr.Range(), "Two users for one host", "names says %s@, this block says %s: this block is used.", host.User, user)
		}
		host.User = user
	}
	if attr := c.attrs["port"]; d.isSet(attr) {
		port := d.integer(attr, 1, 65535)
		if host.Port != 0 && port != 0 && port != host.Port {
			d.warn(attr.Expr.Range(), "Two ports for one host", "names says :%d, this block says %d: this block is used.", host.Port, port)
		}
		host.Port = port
	}
}
