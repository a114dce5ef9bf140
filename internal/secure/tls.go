package secure

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// TLS returns a configuration that presents the certificate in the two PEM
// files, and a newer one soon after the files have changed: the next handshake
// looks at them, at most once a second. Files that do not fit together, as when
// only one of them has been written yet, are logged, and the certificate before
// stays in use. The error is about the files as they are now.
func TLS(certFile, keyFile string, log *slog.Logger) (*tls.Config, error) {
	p := &pair{certFile: certFile, keyFile: keyFile, log: log, now: time.Now}
	if err := p.loadLocked(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.certificate(), nil },
	}, nil
}

// recheck is the least time between two looks at the files.
const recheck = time.Second

// pair is a certificate and its key, in two files.
type pair struct {
	certFile, keyFile string
	log               *slog.Logger
	now               func() time.Time

	mu      sync.Mutex
	cert    *tls.Certificate // never nil once TLS has returned
	loaded  [2]version       // what the files were when they were last read
	checked time.Time        // when they were last looked at
}

// version tells one content of a file from another, without reading it.
type version struct {
	modified time.Time
	size     int64
}

// certificate returns the certificate to present, having read the files if they
// have changed.
func (p *pair) certificate() *tls.Certificate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.now(); now.Sub(p.checked) >= recheck {
		p.checked = now
		if versions, err := p.versions(); err == nil && versions == p.loaded {
			return p.cert
		}
		before := p.loaded
		switch err := p.loadLocked(); {
		case err == nil:
			p.log.Info("TLS certificate reloaded", "cert", p.certFile)
		case p.loaded != before: // once for each change, not once a second
			p.log.Error("the TLS certificate has changed but cannot be used, the one before stays in use", "err", err)
		}
	}
	return p.cert
}

// loadLocked reads the files. On an error the certificate stays as it is.
func (p *pair) loadLocked() error {
	versions, err := p.versions()
	// Taken before the files are read: if they change meanwhile they are read
	// again.
	p.loaded, p.checked = versions, p.now()
	if err != nil {
		return fmt.Errorf("TLS certificate: %w", err)
	}
	cert, err := tls.LoadX509KeyPair(p.certFile, p.keyFile)
	if err != nil {
		return fmt.Errorf("TLS certificate %s with key %s: %w", p.certFile, p.keyFile, err)
	}
	p.cert = &cert
	return nil
}

func (p *pair) versions() (v [2]version, err error) {
	for i, name := range []string{p.certFile, p.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return [2]version{}, err
		}
		v[i] = version{info.ModTime(), info.Size()}
	}
	return v, nil
}
