package apiserver

import (
	"fmt"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
)

// shardRange matches one range of a shard selector, as strictly as the real server.
var shardRange = regexp.MustCompile(
	`^shardRange\((object\.metadata\.(?:uid|namespace)), '(0x[0-9a-f]{16})', '(0x[0-9a-f]{16}|0x10000000000000000)'\)$`)

// shardSelector parses a shard selector. nil selects all objects; it is also returned if the feature is disabled. A
// plain error becomes a 500, as on the real server.
func (x *exchange) shardSelector(text string) (sharding.Selector, error) {
	if text == "" || !x.s.opts.ShardedListAndWatch {
		return nil, nil
	}
	var reqs []sharding.ShardRangeRequirement
	for part := range strings.SplitSeq(text, " || ") {
		m := shardRange.FindStringSubmatch(part)
		if m == nil || !sharding.HexLess(m[2], m[3]) || len(reqs) > 0 && reqs[0].Key != m[1] {
			return nil, fmt.Errorf("cannot parse shard selector %q at %q", text, part)
		}
		reqs = append(reqs, sharding.ShardRangeRequirement{Key: m[1], Start: m[2], End: m[3]})
	}
	return sharding.NewSelector(reqs...), nil
}

// inShard reports whether a shard selector selects an object.
func (s selection) inShard(o *object) bool {
	if s.shard == nil {
		return true
	}
	in, err := s.shard.Matches(&metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, UID: types.UID(o.uid)},
	})
	return err == nil && in
}
