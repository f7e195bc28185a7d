package fair

import (
	"fmt"
	"testing"
)

// TestCacheIsShared: a group that fills the cache evicts no entry of another group.
func TestCacheIsShared(t *testing.T) {
	t.Parallel()
	c := NewCache[string, int](4)
	c.Put("mine", "me", 1)
	for i := range 100 {
		c.Put(fmt.Sprint(i), "them", i)
	}
	if _, ok := c.Get("mine"); !ok {
		t.Error("another group has evicted the entry")
	}
	for _, key := range []string{"97", "98", "99"} {
		if _, ok := c.Get(key); !ok {
			t.Errorf("the recent entry %s is missing", key)
		}
	}
	c.Put("99", "me", 7)
	if v, _ := c.Get("99"); v != 7 || c.Len() != 4 {
		t.Errorf("%d, %d entries", v, c.Len())
	}
	for key := range c.entries {
		c.Drop(key)
		c.Drop(key)
	}
	if c.groups.Len() != 0 {
		t.Errorf("%d entries are left", c.groups.Len())
	}
}
