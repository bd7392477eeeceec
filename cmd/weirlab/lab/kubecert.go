package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"time"
)

// credentials are the keys of one API server, in PEM.
type credentials struct {
	ca        []byte // its certificate is what clients trust
	cert, key []byte // of the server
	signing   []byte // key of the tokens of service accounts
}

// newCredentials makes them for a server that is called by these addresses and names.
func newCredentials(addrs []netip.Addr, names []string) (credentials, error) {
	root := certificate("weirlab")
	root.IsCA, root.BasicConstraintsValid, root.KeyUsage = true, true, x509.KeyUsageCertSign
	rootKey, err := newKey()
	if err != nil {
		return credentials{}, err
	}
	leaf := certificate("kube-apiserver")
	leaf.KeyUsage, leaf.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	leaf.DNSNames = names
	for _, addr := range addrs {
		leaf.IPAddresses = append(leaf.IPAddresses, net.IP(addr.AsSlice()))
	}
	leafKey, err := newKey()
	if err != nil {
		return credentials{}, err
	}
	signing, err := newKey()
	if err != nil {
		return credentials{}, err
	}
	var c credentials
	if c.ca, err = sign(root, root, rootKey, rootKey); err != nil {
		return credentials{}, err
	}
	if c.cert, err = sign(leaf, root, leafKey, rootKey); err != nil {
		return credentials{}, err
	}
	if c.key, err = keyPEM(leafKey); err != nil {
		return credentials{}, err
	}
	c.signing, err = keyPEM(signing)
	return c, err
}

// certificate is valid for longer than any lab lives, and from yesterday on: a box may have a clock of
// its own.
func certificate(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-24 * time.Hour),
		NotAfter:     now.Add(30 * 24 * time.Hour),
	}
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func sign(cert, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, parentKey)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", cert.Subject.CommonName, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
