package nvidiasmi

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/muster-dev/muster/plugins/nvidiasmi/plaintext"
)

// element is a part of the XML. All methods work on nil, which stands for one that is absent.
type element struct {
	XMLName xml.Name
	ID      string     `xml:"id,attr"`
	Text    string     `xml:",chardata"`
	Kids    []*element `xml:",any"`
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
	for _, kid := range e.Kids {
		if kid.XMLName.Local == name {
			return kid
		}
	}
	return nil
}

func (e *element) text() string { return strings.TrimSpace(e.Text) }

// walk calls f for each element that holds no others.
func (e *element) walk(f func(text string)) {
	if len(e.Kids) == 0 {
		f(e.text())
	}
	for _, kid := range e.Kids {
		kid.walk(f)
	}
}

// readTree reads the elements below the root, which output begins with: what stands before it, a
// DOCTYPE and sentences about lost GPUs, was cut off, and no DTD is fetched. Of an output that is
// cut short it returns the elements that came whole.
func readTree(output []byte) (kids []*element, err error) {
	// Names of processes hold anything.
	dec := xml.NewDecoder(bytes.NewReader(plaintext.Printable(withoutClocks(output))))
	dec.Strict = false
	if _, err := dec.Token(); err != nil { // the root itself
		return nil, err
	}
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return kids, err
		}
		switch token := token.(type) {
		case xml.EndElement:
			return kids, nil
		case xml.StartElement:
			e := &element{}
			if err := dec.DecodeElement(e, &token); err != nil {
				return kids, fmt.Errorf("element %s: %w", token.Name.Local, err)
			}
			kids = append(kids, e)
		}
	}
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
