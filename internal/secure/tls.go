package secure

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// TLS returns a configuration that presents the certificate in the two PEM
// files, and a newer one soon after the files have changed: the next handshake
// looks at them, at most once a second. Files that do not fit together, as when
// only one of them has been written yet, are logged, and the certificate before
// stays in use. The error is about the files as they are now. Without files there
// is no TLS, and the configuration is nil.
func TLS(certFile, keyFile string, log *slog.Logger) (*tls.Config, error) {
	if certFile == "" {
		return nil, nil
	}
	p := &pair{certFile: certFile, keyFile: keyFile, log: log, now: time.Now}
	if _, err := p.loadLocked(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.certificate(), nil },
	}, nil
}

// recheck is the least time between two readings of the files.
const recheck = time.Second

// pair is a certificate and its key, in two files.
type pair struct {
	certFile, keyFile string
	log               *slog.Logger
	now               func() time.Time

	cert atomic.Pointer[tls.Certificate] // never nil once TLS has returned

	mu      sync.Mutex // held by the one handshake that looks at the files
	found   content    // what was in them when they were last read
	checked time.Time  // when that was
}

// content tells one content of the two files from another. Size and time of
// modification would not: tools that replace files may keep both.
type content [2][sha256.Size]byte

// certificate returns the certificate to present, having read the files if that
// is due. Files that cannot be read at once hold up one handshake, not all.
func (p *pair) certificate() *tls.Certificate {
	if p.mu.TryLock() {
		defer p.mu.Unlock()
		if p.now().Sub(p.checked) >= recheck {
			p.reloadLocked()
		}
	}
	return p.cert.Load()
}

func (p *pair) reloadLocked() {
	before := p.found
	switch changed, err := p.loadLocked(); {
	case err == nil && changed:
		p.log.Info("TLS certificate reloaded", "cert", p.certFile)
	case err != nil && p.found != before: // once for each change, not once a second
		p.log.Error("the TLS certificate has changed but cannot be used, the previous one stays in use", "err", err)
	}
}

// loadLocked reads the files, and reports whether they hold another pair than when
// they were last read. On an error the certificate stays as it is.
func (p *pair) loadLocked() (changed bool, err error) {
	p.checked = p.now()
	var pem [2][]byte
	for i, name := range []string{p.certFile, p.keyFile} {
		if pem[i], err = ReadFile(name, false); err != nil {
			p.found = content{}
			return true, fmt.Errorf("TLS certificate: %w", err)
		}
	}
	found := content{sha256.Sum256(pem[0]), sha256.Sum256(pem[1])}
	if found == p.found {
		return false, nil
	}
	p.found = found
	cert, err := tls.X509KeyPair(pem[0], pem[1])
	if err != nil {
		return true, fmt.Errorf("TLS certificate %s with key %s: %w", p.certFile, p.keyFile, err)
	}
	p.cert.Store(&cert)
	return true, nil
}
