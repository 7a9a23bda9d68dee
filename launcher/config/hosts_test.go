package config

import (
	"strings"
	"testing"
)

func TestParseHosts(t *testing.T) {
	hosts, err := ParseHosts("bob@box:2201,box:2202", "other")
	if err != nil {
		t.Fatal(err)
	}
	if h := hosts[0]; h.Name != "box:2201" || h.Address != "box" || h.User != "bob" || h.Port != 2201 {
		t.Errorf("got %+v", h)
	}
	if h := hosts[2]; h.Name != "other" || h.Address != "other" || h.Port != 0 {
		t.Errorf("got %+v", h)
	}
	if _, err := ParseHosts("a", "x@A"); err == nil {
		t.Error("a host that is listed twice was taken")
	}
}

// TestSizeOutOfRange: bounds are named in the units that people write.
func TestSizeOutOfRange(t *testing.T) {
	for _, value := range []string{"1KiB", "17TiB"} {
		_, diags := Source{Filename: "x.hcl", Text: []byte("job \"x\" {\n command = [\"x\"]\n hosts \"local\" {}\n ranks { min_free = \"" + value + "\" }\n}")}.Evaluate()
		if len(diags) != 1 || !strings.Contains(diags[0].Detail, "between 1MiB and 16TiB") {
			t.Errorf("%s: %v", value, diags)
		}
	}
}
