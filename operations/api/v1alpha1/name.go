package v1alpha1

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxNamePrefix bounds the readable part of a hashed name, in bytes.
const maxNamePrefix = 120

// OperationName is the name of the Operation of a resource: "<resourceType>-<resourceID>" when both are lower case, the
// type has no dash and the whole is a valid name; else a readable prefix and a hash of both. Two different resources
// never share a name:
//
//   - the first dash of a plain name ends the type, so plain names can be read back;
//   - a hashed name has no dash, so it is no plain name;
//   - the hash is 160 bits of SHA-256 over both parts and the length of the first.
//
// It is a pure function: every process finds the same name, which is how the API server arbitrates between two
// schedulers.
func OperationName(resourceType, resourceID string) string {
	plain := resourceType + "-" + resourceID
	if resourceType != "" && resourceID != "" && !strings.Contains(resourceType, "-") &&
		len(validation.IsDNS1123Subdomain(plain)) == 0 {
		return plain // a valid name is lower case throughout
	}
	hash := hashResource(resourceType, resourceID)
	prefix := dotted(resourceType + "." + resourceID)
	if prefix == "" {
		return hash
	}
	return prefix + "." + hash
}

func hashResource(resourceType, resourceID string) string {
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(resourceType))))
	h.Write([]byte(resourceType))
	h.Write([]byte(resourceID))
	return base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").EncodeToString(h.Sum(nil)[:20])
}

// dotted keeps the letters and digits of s, in lower case, with one dot for whatever stands between them.
func dotted(s string) string {
	var b strings.Builder
	gap := false
	for _, r := range strings.ToLower(s) {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			gap = true
			continue
		}
		if gap && b.Len() > 0 {
			b.WriteByte('.')
		}
		gap = false
		b.WriteRune(r)
		if b.Len() >= maxNamePrefix {
			break
		}
	}
	return b.String()
}
