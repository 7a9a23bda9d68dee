package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// maxGroup bounds the size of a group of ranks: beyond it a number is a slip.
const maxGroup = 1 << 20

var groupName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,62}$`)

// groups decodes sizes of groups of ranks, by size, largest first.
func (d *decoder) groups(attr *hclsyntax.Attribute) []Group {
	if attr == nil {
		return nil
	}
	var found []Group
	if object, ok := unwrap(attr.Expr).(*hclsyntax.ObjectConsExpr); ok {
		found = d.writtenGroups(object)
	} else {
		found = d.computedGroups(attr)
	}
	slices.SortFunc(found, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Name, b.Name))
	})
	d.checkNesting(found)
	return found
}

// writtenGroups are those of an object that is written out, with their places.
func (d *decoder) writtenGroups(object *hclsyntax.ObjectConsExpr) []Group {
	var found []Group
	places := map[string]hcl.Range{}
	for _, item := range object.Items {
		key, keyOK := d.value(item.KeyExpr)
		size, sizeOK := d.value(item.ValueExpr)
		if !keyOK {
			continue
		}
		at := item.KeyExpr.Range()
		name, ok := d.scope.scalar(item.KeyExpr, key)
		if earlier, twice := places[name]; ok && twice {
			d.errorAlso(at, earlier, "Repeated group", "%s has a size at %s already. Give each kind of group one size.", name, earlier)
			continue
		}
		places[name] = at
		if !d.checkGroupName(name, at) || !sizeOK {
			continue
		}
		if group, ok := d.group(name, size, item.ValueExpr.Range()); ok {
			group.Range = hcl.RangeBetween(at, item.ValueExpr.Range())
			found = append(found, group)
		}
	}
	return found
}

// computedGroups are those of an expression; all have its place.
func (d *decoder) computedGroups(attr *hclsyntax.Attribute) []Group {
	value, ok := d.attr(attr)
	at := attr.Expr.Range()
	switch {
	case !ok:
		return nil
	case !value.Type().IsObjectType() && !value.Type().IsMapType():
		d.error(at, "Wrong type", "groups is an object of names and sizes, not %s: write { tensor = 4 }.", describe(value))
		return nil
	}
	var found []Group
	for it := value.ElementIterator(); it.Next(); {
		key, size := it.Element()
		if !d.checkGroupName(key.AsString(), at) {
			continue
		}
		if group, ok := d.group(key.AsString(), size, at); ok {
			found = append(found, group)
		}
	}
	return found
}

func (d *decoder) checkGroupName(name string, at hcl.Range) bool {
	if !groupName.MatchString(name) {
		d.error(at, "Invalid group name", "%q: the name of a group is made of letters, digits, '-' and '_', 63 at most, and begins with a letter or '_'.", name)
		return false
	}
	return true
}

func (d *decoder) group(name string, size cty.Value, at hcl.Range) (Group, bool) {
	n, ok := 0, false
	if !size.IsNull() {
		n, ok = d.wholeNumber(size)
	}
	if !ok || n < 2 || n > maxGroup {
		d.error(at, "Invalid group size", "The size of %s is a whole number of ranks from 2 to %d, not %s. Leave out groups of one rank.", name, maxGroup, describe(size))
		return Group{}, false
	}
	return Group{Name: name, Size: n, Range: at}, true
}

// checkNesting checks that each size divides the next larger one. Groups are of ranks in
// a row: otherwise one of them would lie across the border of two larger ones.
func (d *decoder) checkNesting(groups []Group) {
	for i := 1; i < len(groups); i++ {
		large, small := groups[i-1], groups[i]
		if large.Size%small.Size == 0 {
			continue
		}
		d.errorAlso(small.Range, large.Range, "Groups do not nest",
			"Groups are made of ranks in a row, and those of %s = %d would lie across the borders of %s = %d. A size must divide the next larger one: %s.",
			small.Name, small.Size, large.Name, large.Size, nestingAdvice(large, small))
	}
}

// nestingAdvice is the nearest sizes that would do.
func nestingAdvice(large, small Group) string {
	above := (large.Size/small.Size + 1) * small.Size
	advice := fmt.Sprintf("write %s = %d", large.Name, above)
	if above > maxGroup {
		advice = fmt.Sprintf("write %s = %d", large.Name, large.Size/small.Size*small.Size)
	}
	if common := gcd(large.Size, small.Size); common > 1 {
		advice += fmt.Sprintf(", or %s = %d", small.Name, common)
	}
	return advice
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
