package allocator

import (
	_ "embed" // for the table
	"encoding/csv"
	"slices"
	"strings"
	"sync"

	"github.com/muster-dev/muster/launcher/internal/text"
)

// key is a setting as torch spells it.
type key struct {
	name         string
	since, until version // until is the first release without it; zero: it is still there
	native       bool    // backend:cudaMallocAsync ignores it
	value        string  // how it is read; see checks
	attribute    string  // what an allocator block calls it; "" where that has no such setting
	needs        string  // it does something beside this one only
	idle         string  // why it does nothing beside expandable segments
}

//go:embed keys.csv
var keysCSV string

// keys reads the table, whose form a test sees to.
var keys = sync.OnceValue(func() []key {
	r := csv.NewReader(strings.NewReader(keysCSV))
	r.Comma, r.Comment = '|', '#'
	rows, err := r.ReadAll()
	if err != nil {
		panic("allocator: the table of keys: " + err.Error())
	}
	var all []key
	for _, row := range rows[1:] {
		all = append(all, key{row[0], parseVersion(row[1]), parseVersion(row[2]), row[3] != "", row[4], row[5], row[6], row[7]})
	}
	return all
})

// keyNamed is the key of that name, nil where no version has one.
func keyNamed(name string) *key {
	i := slices.IndexFunc(keys(), func(k key) bool { return k.name == name })
	if i < 0 {
		return nil
	}
	return &keys()[i]
}

// in is whether the version reads the key.
func (k *key) in(v version) bool {
	return v.has(k.since) && (k.until == version{} || !v.has(k.until))
}

// Name is what an allocator block calls one of torch's settings; "" where the block has no such setting.
func Name(key string) string {
	if k := keyNamed(key); k != nil {
		return k.attribute
	}
	return ""
}

// Keys are torch's names of all settings.
func Keys() (names []string) {
	for _, k := range keys() {
		names = append(names, k.name)
	}
	return names
}

// Key is torch's name for what an allocator block calls name; "" for none.
func Key(name string) string {
	if i := slices.IndexFunc(keys(), func(k key) bool { return k.attribute == name }); i >= 0 && name != "" {
		return keys()[i].name
	}
	return ""
}

// NativeOnly is whether the backend cudaMallocAsync ignores a setting, by torch's name.
func NativeOnly(key string) bool {
	k := keyNamed(key)
	return k != nil && k.native
}

// suggestion is the key that name is probably a slip of, "" for none.
func suggestion(name string) string {
	name = strings.ToLower(strings.ReplaceAll(name, "-", "_"))
	var names []string
	for _, k := range keys() {
		short := strings.TrimSuffix(k.name, "_mb")
		if name == short || name == short+"_gb" || strings.HasSuffix(k.name, "_"+name) {
			return k.name
		}
		names = append(names, k.name)
	}
	return text.Nearest(name, names, 3)
}
