package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLeftovers(t *testing.T) {
	t.Parallel()
	const list = "    1 /sbin/init /tmp/run1/x\n   17 etcd --data-dir=/tmp/run1/etcd\n" +
		"  18 etcd --data-dir=/tmp/run12/etcd\n 19 vi /tmp/run1\n"
	if diff := cmp.Diff([]int{17}, leftovers(list, "/tmp/run1")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
