package nvidiasmi

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// element is a part of the XML with its own text. All methods work on nil, which stands
// for an element that is absent.
type element struct {
	name string
	id   string // its attribute id
	text string
	kids []*element
}

// at finds an element below e by its path of names, "pci/pci_bus_id".
func (e *element) at(path string) *element {
	for name := range strings.SplitSeq(path, "/") {
		e = e.kid(name)
	}
	return e
}

func (e *element) kid(name string) *element {
	if e == nil {
		return nil
	}
	for _, kid := range e.kids {
		if kid.name == name {
			return kid
		}
	}
	return nil
}

// walk calls f for each element that holds no others.
func (e *element) walk(f func(text string)) {
	if e == nil {
		return
	}
	if len(e.kids) == 0 {
		f(e.text)
	}
	for _, kid := range e.kids {
		kid.walk(f)
	}
}

const (
	deepest  = 32     // real ones: 6
	mostText = 4096   // of one element
	mostKids = 100000 // elements of one GPU; real ones: 600 without clocks
)

// treeReader builds elements from tokens.
type treeReader struct {
	dec  *xml.Decoder
	left int
}

// newTreeReader reads on from the root element: what stands before it, a DOCTYPE and
// sentences about lost GPUs, is not looked at, and no DTD is fetched. Characters that XML
// forbids occur in names of processes.
func newTreeReader(output []byte) *treeReader {
	dec := xml.NewDecoder(bytes.NewReader(printable(withoutClocks(output))))
	dec.Strict = false
	return &treeReader{dec: dec, left: mostKids}
}

// withoutClocks leaves out the lists of hundreds of clocks, nine tenths of the output.
func withoutClocks(output []byte) []byte {
	var rest []byte
	for {
		before, clocks, found := bytes.Cut(output, []byte("<supported_clocks>"))
		rest = append(rest, before...)
		_, after, ends := bytes.Cut(clocks, []byte("</supported_clocks>"))
		if !found || !ends {
			return rest
		}
		output = after
	}
}

// read builds the element that start begins, up to its end.
func (t *treeReader) read(start xml.StartElement, depth int) (*element, error) {
	e := &element{name: start.Name.Local}
	for _, attr := range start.Attr {
		if attr.Name.Local == "id" {
			e.id = attr.Value
		}
	}
	if t.left--; t.left < 0 || depth > deepest {
		return nil, fmt.Errorf("element %q: too many or too deep", e.name)
	}
	var text strings.Builder
	for {
		token, err := t.dec.Token()
		if err != nil {
			return nil, unfinished(err)
		}
		switch token := token.(type) {
		case xml.EndElement:
			e.text = strings.TrimSpace(strings.ToValidUTF8(text.String(), "")) // it may be cut within a letter
			return e, nil
		case xml.CharData:
			text.Write(token[:min(len(token), mostText-text.Len())])
		case xml.StartElement:
			kid, err := t.read(token, depth+1)
			if err != nil {
				return nil, err
			}
			e.kids = append(e.kids, kid)
		}
	}
}

// unfinished says that the output was cut where the end of it came too early.
func unfinished(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
