package userkeys

import (
	"fmt"
	"io"

	"golang.org/x/crypto/ssh"
)

// offer is a key that can be shown to a server. It notes what became of it. The
// handshake asks for the public key first and signs only what the server takes,
// so an encrypted key is opened only where it is of use.
type offer struct {
	public   ssh.PublicKey
	label    string
	agentKey ssh.Signer // held by the agent, or
	file     *File      // on disk
	tried    bool
	accepted bool
	signErr  error
}

func (o *offer) PublicKey() ssh.PublicKey {
	o.tried = true
	return o.public
}

func (o *offer) Sign(random io.Reader, data []byte) (*ssh.Signature, error) {
	return o.SignWithAlgorithm(random, data, "")
}

func (o *offer) SignWithAlgorithm(random io.Reader, data []byte, algorithm string) (*ssh.Signature, error) {
	o.accepted = true
	signature, err := o.sign(random, data, algorithm)
	o.signErr = err
	return signature, err
}

func (o *offer) sign(random io.Reader, data []byte, algorithm string) (*ssh.Signature, error) {
	signer := o.agentKey
	if o.file != nil {
		state := o.file.now()
		if state.locked {
			return nil, errLocked
		}
		signer = state.signer
	}
	if signer == nil {
		return nil, fmt.Errorf("%s cannot sign", o.label)
	}
	if able, ok := signer.(ssh.AlgorithmSigner); ok && algorithm != "" {
		return able.SignWithAlgorithm(random, data, algorithm)
	}
	return signer.Sign(random, data)
}

// fate says in words what became of an offer that was tried.
func (o *offer) fate() string {
	switch {
	case o.signErr == errLocked:
		return o.label + " (accepted, but encrypted and there is no terminal to ask for its passphrase; add it to ssh-agent)"
	case o.signErr != nil:
		return fmt.Sprintf("%s (accepted, but signing failed: %v)", o.label, o.signErr)
	case o.accepted:
		return o.label + " (signature refused)"
	}
	return o.label + " (refused)"
}
