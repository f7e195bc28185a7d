package store

// Fold makes a cursor slow: what it has not taken is folded per key, down to left entries of the log.
func Fold(c *Cursor, left uint64) { c.fold(left) }
