// Package paging finds paged lists that do not end.
package paging

import (
	"errors"
	"hash/fnv"
)

// A list counts as endless after these numbers of pages.
const (
	maxEmpty    = 1000 // pages without objects in succession: a server may apply a selector after the limit
	maxRepeated = 100  // pages that begin like an earlier one: a proxy may send a page twice
)

// The reasons why a list does not end.
var (
	ErrToken = errors.New("list repeats a continue token")
	ErrPages = errors.New("list repeats pages more than 100 times")
	ErrEmpty = errors.New("list has more than 1000 pages without objects in succession")
)

// Check remembers the pages of one list. Its zero value is ready for use. It needs a few dozen bytes for each page.
type Check struct {
	tokens   map[string]struct{}
	firsts   map[uint64]struct{}
	empty    int
	repeated int

	objects bool   // the current page has some
	first   uint64 // hash of the first of them
}

// Retry forgets the current page, which is requested again.
func (c *Check) Retry() { c.objects = false }

// Object records an object of the current page. parts identify it.
func (c *Check) Object(parts ...[]byte) {
	if c.objects {
		return
	}
	h := fnv.New64a()
	for _, part := range parts {
		_, _ = h.Write(part)
		_, _ = h.Write([]byte{0})
	}
	c.objects, c.first = true, h.Sum64()
}

// Next ends the current page, which has a continue token. It returns an error if the list would not end.
func (c *Check) Next(token string) error {
	if c.tokens == nil {
		c.tokens, c.firsts = map[string]struct{}{}, map[uint64]struct{}{}
	}
	objects := c.objects
	c.objects = false
	if !added(c.tokens, token) {
		return ErrToken
	}
	if !objects {
		if c.empty++; c.empty > maxEmpty {
			return ErrEmpty
		}
		return nil
	}
	c.empty = 0
	if !added(c.firsts, c.first) {
		if c.repeated++; c.repeated > maxRepeated {
			return ErrPages
		}
	}
	return nil
}

func added[K comparable](set map[K]struct{}, k K) bool {
	n := len(set)
	set[k] = struct{}{}
	return len(set) > n
}
