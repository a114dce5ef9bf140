package secure

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
)

// Token is a bearer token (RFC 6750) that requests have to carry. The zero
// value allows every request. A Token is safe for concurrent use.
type Token struct {
	required bool
	hash     [sha256.Size]byte
}

// NewToken returns the token s. If s is empty, every request is allowed.
func NewToken(s string) Token {
	return Token{required: s != "", hash: sha256.Sum256([]byte(s))}
}

// Allows reports whether a request with that Authorization header is allowed. The
// time it takes does not depend on how much of the token is right: hashes of
// one length are compared, to the end.
func (t Token) Allows(authorization []byte) bool {
	if !t.required {
		return true
	}
	scheme, credentials, _ := bytes.Cut(authorization, []byte(" "))
	if !bytes.EqualFold(scheme, []byte("Bearer")) {
		return false
	}
	hash := sha256.Sum256(bytes.Trim(credentials, " "))
	return subtle.ConstantTimeCompare(hash[:], t.hash[:]) == 1
}
