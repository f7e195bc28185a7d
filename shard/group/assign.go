package group

import (
	"cmp"
	"slices"
)

// assign computes the target of each slot. It distributes the slots as evenly as the weights allow, and moves as few
// slots as possible. Members that leave, or are not in members, get no slots. Without any members the target is "". The
// result depends only on the record. Applied to its own result, assign changes nothing.
//
// Quotas use the largest remainder method. For equal remainders, a member with an excess slot keeps it. A member whose
// coverage is older than that of another one gains no slots: they go to the members with the newest coverage.
func assign(members []member, slots []slot) []string {
	quota := quotas(members, slots)
	next := make([]string, len(slots))
	keep := func(is func(slot) bool) {
		for i, s := range slots {
			if now := present(quota, s); next[i] == "" && quota[now] > 0 && is(s) {
				next[i] = now
				quota[now]--
			}
		}
	}
	keep(func(s slot) bool { return s.next == s.holder })
	keep(func(s slot) bool { _, ok := quota[s.next]; return ok })
	keep(func(slot) bool { return true })
	var open []string // a member ID for each slot below a quota
	for _, m := range members {
		for range quota[m.ID] {
			open = append(open, m.ID)
		}
	}
	for i := range next {
		if next[i] == "" && len(open) > 0 {
			next[i], open = open[0], open[1:]
		}
	}
	return next
}

// present returns the member that counts as having a slot: the target, which may not hold it yet, or else the holder.
func present(quota map[string]int, s slot) string {
	if _, ok := quota[s.next]; ok {
		return s.next
	}
	if _, ok := quota[s.holder]; ok {
		return s.holder
	}
	return ""
}

// quotas returns how many slots each member should hold, without members that leave. Members with an older coverage
// keep at most their share, and the others divide the rest.
func quotas(members []member, slots []slot) map[string]int {
	type share struct {
		id              string
		remainder, over int
	}
	quota := map[string]int{}
	newest, total := 0, 0
	for _, m := range members {
		if !m.Leaving {
			quota[m.ID] = 0
			total += m.Weight
			newest = max(newest, m.Coverage)
		}
	}
	have := map[string]int{}
	for _, s := range slots {
		have[present(quota, s)]++
	}
	rest, weight := len(slots), 0
	for _, m := range members {
		switch {
		case m.Leaving:
		case m.Coverage == newest:
			weight += m.Weight
		default:
			quota[m.ID] = min(have[m.ID], len(slots)*m.Weight/total)
			rest -= quota[m.ID]
		}
	}
	var shares []share
	left := rest
	for _, m := range members {
		if m.Leaving || m.Coverage != newest {
			continue
		}
		quota[m.ID] = rest * m.Weight / weight
		left -= quota[m.ID]
		shares = append(shares, share{m.ID, rest * m.Weight % weight, have[m.ID] - quota[m.ID]})
	}
	slices.SortFunc(shares, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.remainder, a.remainder), cmp.Compare(b.over, a.over), cmp.Compare(a.id, b.id))
	})
	for _, s := range shares[:min(left, len(shares))] {
		quota[s.id]++
	}
	return quota
}
