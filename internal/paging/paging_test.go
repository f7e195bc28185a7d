package paging

import (
	"strconv"
	"testing"
)

func TestCheck(t *testing.T) {
	type page struct {
		token   string
		objects int
		first   uint64
	}
	var empty []page
	for i := range maxEmpty + 1 {
		empty = append(empty, page{strconv.Itoa(i), 0, 0})
	}
	apart := append(append(append([]page{}, empty[:maxEmpty]...), page{"full", 1, 1}), page{"after", 0, 0})
	for name, test := range map[string]struct {
		pages []page
		want  error // for the last page
	}{
		"list that ends":         {[]page{{"a", 2, 1}, {"b", 2, 2}, {"c", 0, 0}, {"d", 0, 0}}, nil},
		"token again":            {[]page{{"a", 2, 1}, {"b", 2, 2}, {"a", 2, 3}}, ErrToken},
		"page with a new token":  {[]page{{"a", 2, 1}, {"b", 2, 2}, {"c", 2, 1}}, ErrPage},
		"empty pages":            {empty, ErrEmpty},
		"empty pages apart":      {apart, nil},
		"object of no hash, 0":   {[]page{{"a", 1, 0}, {"b", 0, 0}}, nil},
		"same object with no ID": {[]page{{"a", 1, 0}, {"b", 1, 0}}, ErrPage},
	} {
		t.Run(name, func(t *testing.T) {
			var c Check
			for i, p := range test.pages {
				err := c.Next(p.token, p.objects, p.first)
				if last := i == len(test.pages)-1; last && err != test.want || !last && err != nil {
					t.Fatalf("page %d: %v, want %v", i, err, test.want)
				}
			}
		})
	}
}
