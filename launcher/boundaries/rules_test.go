package boundaries

// rule is a ban. Packages are written without this module's path where they are its
// own; "x/..." is x and all below it.
type rule struct {
	from []string
	not  []string
	// direct bans the import only; otherwise what is imported on the way counts too.
	direct bool
	why    string
}

// Other people's packages that most rules are about.
const (
	hcl  = "github.com/hashicorp/hcl/v2/..."
	cty  = "github.com/zclconf/go-cty/..."
	cli  = "github.com/urfave/cli/v2"
	ssh  = "golang.org/x/crypto/ssh/..."
	nvml = "github.com/NVIDIA/go-nvml/..."
	grpc = "google.golang.org/grpc/..."
	term = "golang.org/x/term"
)

var rules = []rule{
	{
		from: []string{"cmd/muster-agent", "launcher/agent/...", "launcher/keeper", "launcher/proc", "launcher/ranklog", "launcher/message"},
		not: []string{hcl, cty, cli, ssh, nvml, term, "launcher", "launcher/config", "launcher/remote/...", "launcher/plan",
			"launcher/coordinator/...", "launcher/event", "launcher/report", "launcher/view/...", "launcher/testbed/...",
			"launcher/check/...", "launcher/failure/...", "launcher/memory"},
		why: "the agent is copied to every host and started there: it does what it is told, and each MB costs start time",
	},
	{
		// Those of go-plugin, which brings net/rpc and with it the rest, are known: 4 MB.
		from:   []string{"cmd/muster-agent", "launcher/...", "rendezvous/...", "plugins/..."},
		not:    []string{"net/http/httptest", "html/template", "text/template"},
		direct: true,
		why:    "templates keep the linker from leaving methods out of the agent",
	},
	{
		from: []string{"rendezvous/..."},
		not:  []string{"launcher/...", "plugins/...", hcl, cty, cli, ssh, nvml, term},
		why:  "rendezvous is members, leases and transport; what they meet for is not its business",
	},
	{
		from:   []string{"launcher/plan/..."},
		not:    []string{"os", "os/exec", "os/user", "os/signal", "io/fs", "path/filepath", "net", "net/http", "time", "math/rand", "math/rand/v2", "crypto/rand", "syscall", "golang.org/x/sys/unix"},
		direct: true,
		why:    "a plan is pure: the same job and facts give the same bytes on the launcher and on the coordinator",
	},
	{
		from: []string{"launcher/plan/..."},
		not:  []string{"launcher/remote/...", "launcher/agent/...", "launcher/coordinator/...", "launcher/view/...", "launcher", "rendezvous/...", ssh, nvml, grpc},
		why:  "a plan is made from facts, whoever got them, and does not know who carries it out",
	},
	{
		from: []string{"launcher/config/..."},
		not: []string{"launcher", "launcher/facts", "launcher/plan", "launcher/remote/...", "launcher/agent/...", "launcher/coordinator/...",
			"launcher/view/...", "launcher/proc", "launcher/message", "rendezvous/...", ssh, grpc, nvml, cli, term, "os/exec"},
		why: "a job file is read on any machine, before any host is contacted and without starting a process",
	},
	{
		from: []string{"launcher/remote/..."},
		not: []string{"launcher", "launcher/config", "launcher/facts", "launcher/plan", "launcher/agent/...", "launcher/coordinator/...",
			"launcher/view/...", "launcher/message", "launcher/event", "launcher/report", "rendezvous/...", hcl, cty, cli, grpc},
		why: "remote is a host that things can be run on; jobs and ranks mean nothing to it",
	},
	{
		from: []string{"launcher/facts"},
		not: []string{"launcher", "launcher/config", "launcher/plan", "launcher/remote/...", "launcher/agent/...", "launcher/coordinator/...",
			"launcher/view/...", "rendezvous/...", hcl, ssh, nvml, grpc},
		why: "facts are what a host says of itself, whatever becomes of them; GPUs come through plugins",
	},
	{
		from: []string{"launcher/coordinator/..."},
		not: []string{ssh, cli, term, nvml, "launcher", "launcher/remote/...", "launcher/view/...", "launcher/agent/...", "launcher/proc",
			"launcher/testbed/...", "cmd/..."},
		why: "the coordinator decides on the head host: hosts come to it, it reaches none and prints nothing",
	},
	{
		from: []string{"launcher/mtu"},
		not: []string{"launcher", "launcher/config", "launcher/facts", "launcher/plan", "launcher/check/...", "launcher/message", "launcher/agent/...",
			"launcher/coordinator/...", "launcher/view/...", "plugins/...", hcl, cty, cli, ssh},
		why: "whether packets pass is a matter of two hosts and their keys; the agent carries it, and checks judge",
	},
	{
		from: []string{"launcher/claim", "launcher/hostfs"},
		not:  []string{"launcher", "launcher/...", "rendezvous/...", "plugins/..."},
		why:  "a claim is a name in the kernel, and a file a file, whoever is interested",
	},
	{
		from: []string{"launcher/samples"},
		not:  []string{"launcher", "launcher/...", "rendezvous/...", "plugins/...", hcl, cty, grpc},
		why:  "samples are numbers over time, whoever has measured them and is told",
	},
	{
		from: []string{"launcher/sampling"},
		not: []string{hcl, cty, cli, ssh, nvml, term, "launcher", "launcher/agent/...", "launcher/config", "launcher/remote/...", "launcher/plan", "launcher/ranklog",
			"launcher/coordinator/...", "launcher/event", "launcher/report", "launcher/view/...", "launcher/check/...", "launcher/failure/..."},
		why: "sampling measures processes and devices; who has started them and what follows is not its business",
	},
	{
		from: []string{"launcher/event", "launcher/report"},
		not: []string{"launcher", "launcher/config", "launcher/remote/...", "launcher/agent/...", "launcher/coordinator/...", "launcher/view/...",
			"launcher/plan", "rendezvous/...", hcl, ssh, grpc},
		why: "events and reports are values that every end of a run reads",
	},
	{
		from: []string{"launcher/evidence"},
		not:  []string{"launcher/message", "launcher/failure/...", "launcher/agent/...", "launcher/coordinator/...", "launcher/plan", "launcher/config", "rendezvous/...", hcl, cty, grpc},
		why:  "evidence is plain data that the agent collects and package failure judges; neither needs the other",
	},
	{
		from: []string{"launcher/observe"},
		not:  []string{"launcher", "launcher/...", "rendezvous/...", "plugins/...", "net", "regexp", hcl, cty, grpc},
		why:  "what a program tells is read the same wherever it comes from, and the agent carries the reader to every host",
	},
	{
		from: []string{"launcher/check/nccl", "launcher/check/allocator", "launcher/collective", "launcher/check/codes", "launcher/failure/class"},
		not:  []string{"launcher", "launcher/...", "rendezvous/...", "plugins/...", hcl, cty},
		why:  "what is known of libraries, and names of findings and failures, are data that others look up",
	},
	{
		from: []string{"launcher/memory"},
		not: []string{"launcher", "launcher/config", "launcher/facts", "launcher/plan", "launcher/check", "launcher/check/codes", "launcher/check/rule", "launcher/view/...", "launcher/remote/...",
			"launcher/agent", "launcher/coordinator/...", "rendezvous/...", "plugins/...", hcl, cty},
		why: "what a model needs is computed from numbers, whoever has written or measured them",
	},
	{
		from:   []string{"launcher/check/...", "launcher/failure/...", "launcher/memory"},
		not:    []string{"os", "os/exec", "net", "net/http", "math/rand", "math/rand/v2", "syscall", "golang.org/x/sys/unix"},
		direct: true,
		why:    "verdicts are the same wherever they are made of the same evidence",
	},
	{
		from: []string{"launcher/failure", "launcher/check/..."},
		not:  []string{"launcher/remote/...", "launcher/agent/...", "launcher/coordinator/...", "launcher/view/...", "rendezvous/...", ssh, grpc, "os/exec"},
		why:  "verdicts are pure functions of what was seen",
	},
	{
		from: []string{"launcher/view/..."},
		not:  []string{"launcher", "launcher/remote/...", "launcher/agent/...", "launcher/coordinator/...", "launcher/proc", "rendezvous/...", ssh, grpc, "os/exec"},
		why:  "printing stands at the end: a printer decides nothing and asks nobody",
	},
	{
		from:   []string{"launcher", "launcher/fleet", "launcher/session"},
		not:    []string{hcl, cty, cli, ssh, nvml, term, "os", "os/exec", "launcher/agent/...", "launcher/coordinator", "launcher/view/..."},
		direct: true,
		why:    "the phases in order as the user's command sees them; each phase's own matters are in its package",
	},
	{
		from:   []string{"cmd/muster", "cmd/muster-agent"},
		not:    []string{hcl, cty, ssh, grpc, nvml, "net", "os/exec", "encoding/json", "rendezvous/...", "launcher/proc", "launcher/message"},
		direct: true,
		why:    "commands are flags, calls and exit status, and know not how anything is done",
	},
	{
		from: []string{"plugins/...", "cmd/muster-plugin-nvml"},
		not:  []string{"launcher", "launcher/...", "rendezvous/..."},
		why:  "a plugin answers about its devices and does not know who asks",
	},
	{
		from: []string{"cmd/muster", "cmd/muster-agent", "cmd/carry", "launcher", "rendezvous/..."},
		not:  []string{nvml, "runtime/cgo"},
		why:  "go-nvml needs cgo; all but its plugin is static and runs on every Linux",
	},
	{
		from: []string{"cmd/muster", "cmd/muster-agent", "cmd/carry"},
		not:  []string{"launcher/testbed/..."}, // testing is go-plugin's
		why:  "the product has no test switch; importing the testbed would start programs as a host's init",
	},
	{
		from: []string{"launcher/testbed/..."},
		not: []string{"launcher", "launcher/config", "launcher/facts", "launcher/plan", "launcher/remote/...", "launcher/agent/...",
			"launcher/coordinator/...", "launcher/view/...", "launcher/proc", "launcher/message", "launcher/rundir", "rendezvous/..."},
		why: "a testbed of the product's own making would hide its mistakes",
	},
}

// only says who may import a package outside of tests.
type only struct {
	target string
	by     []string
	why    string
}

var onlies = []only{
	{"launcher/testbed", []string{"launcher/testbed/cmd/...", "launcher/bench"}, "programs that import it can be started as a host's init"},
	{"launcher/agent/...", []string{"cmd/muster", "cmd/muster-agent", "launcher/agent/..."}, "keeper and agent are programs; the rest talks to them"},
	{"launcher/remote", []string{"cmd/muster", "launcher", "launcher/fleet", "launcher/session"}, "one package connects, and its callers hand it in"},
	{"launcher/view/...", []string{"cmd/muster", "launcher/view/..."}, "printing stands at the end"},
	{"github.com/urfave/cli/v2", []string{"cmd/muster"}, "the command line is the command's matter"},
	{"golang.org/x/crypto/ssh/...", []string{"launcher/remote/...", "launcher/testbed/..."}, "one package speaks SSH"},
	{"github.com/hashicorp/hcl/v2/...", []string{"launcher/config/..."}, "one package knows the job file's language"},
	{nvml, []string{"plugins/nvml/..."}, "it needs cgo"},
}

// later names what DESIGN.md has and this tree may not have yet. A rule about anything
// else that is not there is a slip.
var later = []string{
	"cmd/muster-plugin-nvml", "plugins/nvml/...", nvml, // read without cgo, they are not there
}
