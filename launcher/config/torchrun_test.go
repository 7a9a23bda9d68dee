package config

import (
	"strings"
	"testing"
)

// TestTorchrunsWordsAreAnsweredWithMusters: who comes from torchrun writes its words;
// the answer says what to write, and what it says to write is accepted.
func TestTorchrunsWordsAreAnsweredWithMusters(t *testing.T) {
	for word, want := range map[string]string{
		"nproc_per_node": "ranks { per_host = N }",
		"workers":        "ranks { per_host = N }",
		"max_restarts":   "restart { attempts = N }",
		"standalone":     `hosts "local" {}`,
		"master_port":    "chooses a free port",
	} {
		diags := diagnose(t, "job \"x\" {\n command = [\"a\"]\n hosts \"local\" {}\n "+word+" = 2\n}\n")
		if len(diags) != 1 || !strings.Contains(diags[0], want) || strings.Contains(diags[0], "It takes") {
			t.Errorf("%s: %q", word, diags)
		}
	}
	for word := range torchrunNames {
		if jobSchema.Has(word) {
			t.Errorf("%s is a word of muster", word)
		}
	}
	for _, text := range []string{`ranks { per_host = 2 }`, `restart { attempts = 2 }`} {
		lines := strings.NewReplacer("{ ", "{\n", " }", "\n}").Replace(text)
		if diags := diagnose(t, "job \"x\" {\n command = [\"a\"]\n hosts \"local\" {}\n "+lines+"\n}\n"); len(diags) > 0 {
			t.Errorf("%s: %q", text, diags)
		}
	}
}

func diagnose(t *testing.T, text string) (details []string) {
	t.Helper()
	_, diags := Source{Filename: "job.hcl", Text: []byte(text)}.Evaluate()
	for _, d := range diags {
		details = append(details, d.Summary+": "+d.Detail)
	}
	return details
}
