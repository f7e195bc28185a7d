package store

// MaxLag is when a cursor is folded.
const MaxLag = maxLag

// Fold makes a cursor slow: what it has not taken is folded per key, down to left entries of the log.
func Fold(c *Cursor, left uint64) { c.fold(left) }

// Backlog returns how many entries of the log, and how many folded keys, wait for a cursor.
func Backlog(c *Cursor) (entries, folded int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for p := c.pos; p.next() != nil; {
		n++
	}
	return n, c.late.len()
}
