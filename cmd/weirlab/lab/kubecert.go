package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
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
	leaf := certificate("kube-apiserver")
	leaf.KeyUsage, leaf.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	leaf.DNSNames = names
	for _, addr := range addrs {
		leaf.IPAddresses = append(leaf.IPAddresses, net.IP(addr.AsSlice()))
	}
	var c credentials
	rootKey, _, err1 := newKey()
	leafKey, key, err2 := newKey()
	_, signing, err3 := newKey()
	if err := errors.Join(err1, err2, err3); err != nil {
		return c, err
	}
	c.key, c.signing = key, signing
	c.ca, err1 = sign(root, root, rootKey, rootKey)
	c.cert, err2 = sign(leaf, root, leafKey, rootKey)
	return c, errors.Join(err1, err2)
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

// newKey makes a key, and returns it in PEM, too.
func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}

func sign(cert, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, parentKey)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", cert.Subject.CommonName, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
