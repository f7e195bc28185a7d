// Package paging finds paged lists that do not end.
package paging

import "errors"

// maxEmpty is the number of pages without objects in succession, after which a list counts as endless. A server that
// applies a selector after the limit sends such pages.
const maxEmpty = 1000

// The reasons why a list does not end.
var (
	ErrToken = errors.New("list repeats a continue token")
	ErrPage  = errors.New("list repeats a page")
	ErrEmpty = errors.New("list has more than 1000 pages without objects in succession")
)

// Check remembers the pages of one list. Its zero value is ready for use. It needs a few dozen bytes for each page.
type Check struct {
	tokens map[string]struct{}
	firsts map[uint64]struct{}
	empty  int
}

// Next records a page with a continue token. objects is the number of objects of the page, and first identifies the
// first of them. Next returns an error if the list would not end.
func (c *Check) Next(token string, objects int, first uint64) error {
	if c.tokens == nil {
		c.tokens, c.firsts = map[string]struct{}{}, map[uint64]struct{}{}
	}
	if !added(c.tokens, token) {
		return ErrToken
	}
	if objects == 0 {
		if c.empty++; c.empty > maxEmpty {
			return ErrEmpty
		}
		return nil
	}
	c.empty = 0
	if !added(c.firsts, first) {
		return ErrPage
	}
	return nil
}

func added[K comparable](set map[K]struct{}, k K) bool {
	n := len(set)
	set[k] = struct{}{}
	return len(set) > n
}
