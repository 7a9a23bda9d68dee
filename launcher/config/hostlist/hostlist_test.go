package hostlist

import (
	"slices"
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	for text, want := range map[string]string{
		"gpu01":                            "gpu01",
		"gpu[01-04]":                       "gpu01 gpu02 gpu03 gpu04",
		"gpu[8-11]":                        "gpu8 gpu9 gpu10 gpu11",
		"gpu[08-11]":                       "gpu08 gpu09 gpu10 gpu11",
		"gpu[098-101]":                     "gpu098 gpu099 gpu100 gpu101",
		"gpu[00-1]":                        "gpu00 gpu01",
		"gpu[0-1]":                         "gpu0 gpu1",
		"n[1-3,7]":                         "n1 n2 n3 n7",
		"n[7,1, 003]":                      "n7 n1 n003",
		"rack[1-2]-n[01-02]":               "rack1-n01 rack1-n02 rack2-n01 rack2-n02",
		"n[1-2].example.org":               "n1.example.org n2.example.org",
		"nodeA,nodeB[001,003],nodeC":       "nodeA nodeB001 nodeB003 nodeC",
		" a , b ":                          "a b",
		"alice@10.0.0.7:2222":              "alice@10.0.0.7:2222",
		"bob@n[1-2]:2222":                  "bob@n1:2222 bob@n2:2222",
		"127.0.0.1:[2201-2203]":            "127.0.0.1:2201 127.0.0.1:2202 127.0.0.1:2203",
		"DOMAIN\\bob.x@host":               "DOMAIN\\bob.x@host",
		"bob@example.org@host":             "bob@example.org@host",
		"[2001:db8::1]:22":                 "[2001:db8::1]:22",
		"[2001:db8::1]":                    "2001:db8::1",
		"2001:db8::1":                      "2001:db8::1",
		"root@[fe80::1%eth0]:22":           "root@[fe80::1%eth0]:22",
		"::1":                              "::1",
		"[::ffff:10.0.0.1]":                "::ffff:10.0.0.1",
		"a_b-c.d":                          "a_b-c.d",
		"[1-2]":                            "1 2",
		"[1-2]:22":                         "1:22 2:22",
		"7":                                "7",
		"n[000000000000000001]":            "n000000000000000001",
		"[2001:db8::1]:22,[2001:db8::2],x": "[2001:db8::1]:22 2001:db8::2 x",
	} {
		t.Run(text, func(t *testing.T) {
			hosts, err := Expand(text)
			if err != nil {
				t.Fatal(err)
			}
			if got := written(hosts); !slices.Equal(got, strings.Fields(want)) {
				t.Errorf("got %q, want %s", got, want)
			}
		})
	}
}

func written(hosts []Host) (all []string) {
	for _, h := range hosts {
		all = append(all, h.Written)
	}
	return all
}

// TestExpandErrors: each error marks the part of the text that is between
// the two bars.
func TestExpandErrors(t *testing.T) {
	for marked, want := range map[string]string{
		"gpu|[01-|":                    `"[" without "]"`,
		"gpu[01-04]|]|":                `"]" without "["`,
		"gpu[|3-1|]":                   "backwards: write 1-3",
		"gpu|[]|":                      "empty",
		"gpu|[ ]|":                     "empty",
		"gpu[1-|[|2-3]]":               "within a range",
		"gpu[1,|,|2]":                  "a number is missing",
		"gpu[|1-|]":                    `"1-" is not a range`,
		"gpu[|-1|]":                    "not a range",
		"gpu[|1-2-3|]":                 "not a range",
		"gpu[|a|-c]":                   "cannot have 'a'",
		"gpu[1-|é|]":                   "cannot have 'é'",
		"gpu[|1-03|]":                  "padded with zeros differently: write 01-03",
		"gpu[|1-4097|]":                "at most 4096",
		"gpu[|0-999999999999999999|]":  "at most 4096",
		"gpu[|0-9999999999999999999|]": "at most 18 digits",
		"|a[1-65]b[1-65]|":             "at most 4096",
		"|h[1-65]:[1-65]|":             "at most 4096",
		"a[1-4096],|b|":                "at most 4096",
		"||":                           "empty",
		"a,|,|b":                       "empty",
		"a,||":                         "empty",
		"bob@||":                       "empty",
		"|@|host":                      "user name is empty",
		"|-|oProxyCommand=x":           `cannot begin with "-"`,
		"|-|l@host":                    `cannot begin with "-"`,
		"a,|-|b":                       `cannot begin with "-"`,
		"[|-|1-2]":                     "",
		"|.|a":                         `cannot begin with "."`,
		"gpu| |01":                     "cannot have ' '",
		"gpu|/|01":                     "cannot have '/'",
		"f|ö|ö":                        "cannot have 'ö'",
		"a| |b@host":                   "cannot have ' '",
		"a|[|1-2]@host":                "cannot have '['",
		"host:|0|":                     "the port 0",
		"host:|65536|":                 "the port 65536",
		"host:[|1-|":                   "",
		"host:2|x|":                    "cannot have 'x'",
		"host|:|":                      "the port after",
		"[::1]|:|":                     "the port after",
		"[::1]|2|2":                    "after the brackets",
		"|1:2:3|":                      "neither HOST:PORT nor an IPv6 address",
		"[|1:2:3|]:22":                 "neither",
		"a[1-2]|:|2:3":                 "",
	} {
		t.Run(marked, func(t *testing.T) { checkHostError(t, marked, want) })
	}
}

func checkHostError(t *testing.T, marked, want string) {
	before, rest, _ := strings.Cut(marked, "|")
	inside, after, _ := strings.Cut(rest, "|")
	text := before + inside + after
	_, host := Expand(text)
	if host == nil {
		t.Fatal("no error")
	}
	if !strings.Contains(host.Problem, want) || host.Text != text {
		t.Errorf("got %v, want %q", host, want)
	}
	end := min(host.Offset+host.Length, len(text))
	if want != "" && (host.Offset != len(before) || text[host.Offset:end] != inside) {
		t.Errorf("%v marks %q at %d, want %q at %d", host, text[host.Offset:end], host.Offset, inside, len(before))
	}
}

func TestLongHostNamesAreRefused(t *testing.T) {
	for _, text := range []string{strings.Repeat("a", 254), strings.Repeat("a", 250) + "[1-2]bcdef", strings.Repeat("x", 1<<20)} {
		if _, err := Expand(text); err == nil || !strings.Contains(err.Error(), "at most 253 characters") {
			t.Errorf("%d characters: %v", len(text), err)
		}
	}
}

// FuzzExpand: what is expanded expands to itself; errors lie in the text.
func FuzzExpand(f *testing.F) {
	for _, seed := range []string{"gpu[01-04]", "a,b[1,3-4]c:22", "u\\x@[2001:db8::1]:22", "a[1-[2]]", "[", "::1", "x@y@z:[1-2]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		hosts, host := Expand(text)
		if host != nil {
			if host.Offset < -1 || host.Length < 0 || host.Offset > len(text) || host.Problem == "" {
				t.Errorf("%q: %+v", text, host)
			}
			return
		}
		if len(hosts) == 0 || len(hosts) > Max {
			t.Fatalf("%q: %d hosts", text, len(hosts))
		}
		for _, name := range written(hosts) {
			again, err := Expand(name)
			if err != nil || len(again) != 1 || again[0].Written != name || strings.HasPrefix(name, "-") {
				t.Errorf("%q of %q expands to %q, %v", name, text, written(again), err)
			}
		}
	})
}
