package link

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// Pin is the SHA-256 of a public key (its SubjectPublicKeyInfo), in hex. It is
// not a secret: it says which key to expect.
type Pin string

// Identity is a key pair of one process for one run. The private half never
// leaves memory.
type Identity struct {
	cert tls.Certificate
	pin  Pin
}

// NewIdentity makes a key and the self-signed certificate that TLS wants around it.
func NewIdentity() (*Identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make identity key: %w", err)
	}
	// Dates are never checked (clocks differ, runs last months); these satisfy the format.
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make identity certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back identity certificate: %w", err)
	}
	return &Identity{
		cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf},
		pin:  pinOf(leaf),
	}, nil
}

// Pin names this identity to its peers.
func (id *Identity) Pin() Pin { return id.pin }

func pinOf(cert *x509.Certificate) Pin {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return Pin(hex.EncodeToString(sum[:]))
}

// TLSConfig accepts a peer whose pin the known function accepts, and no other.
func (id *Identity) TLSConfig(known func(Pin) bool) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{id.cert},
		ClientAuth:         tls.RequireAnyClientCert,
		InsecureSkipVerify: true, // names and dates mean nothing here; VerifyConnection pins the key
		NextProtos:         []string{"h2"},
		// No resumption: a ticket would vouch for a key that was not shown again.
		SessionTicketsDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return errors.New("peer showed no key")
			}
			if pin := pinOf(state.PeerCertificates[0]); !known(pin) {
				return fmt.Errorf("peer's key %.12s… is not one of this run", pin)
			}
			return nil
		},
	}
}
