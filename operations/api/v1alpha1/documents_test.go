package v1alpha1

import (
	"bytes"
	"iter"
)

// documents yields the documents of a stream of YAML.
func documents(stream []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for doc := range bytes.SplitSeq(stream, []byte("---\n")) {
			if len(bytes.TrimSpace(doc)) > 0 && !yield(doc) {
				return
			}
		}
	}
}
