package paging

import (
	"strconv"
	"testing"
)

// TestCheck plays the pages of lists. Only the last page of each may be an error.
func TestCheck(t *testing.T) {
	t.Parallel()
	type page struct {
		token   string
		objects []string
	}
	numbered := func(n int, objects ...string) (out []page) {
		for i := range n {
			out = append(out, page{strconv.Itoa(i), objects})
		}
		return out
	}
	apart := append(numbered(maxEmpty), page{"full", []string{"a"}}, page{"after", nil})
	for name, tc := range map[string]struct {
		pages []page
		want  error
	}{
		"Ends":            {[]page{{"1", []string{"a", "b"}}, {"2", []string{"c"}}, {"3", nil}, {"4", nil}}, nil},
		"TokenAgain":      {[]page{{"1", []string{"a"}}, {"2", []string{"b"}}, {"1", []string{"c"}}}, ErrToken},
		"PageSentAgain":   {[]page{{"1", []string{"a", "b"}}, {"2", []string{"a", "b"}}, {"3", []string{"c"}}}, nil},
		"PagesRepeat":     {numbered(maxRepeated+2, "a", "b"), ErrPages},
		"EmptyPages":      {numbered(maxEmpty + 1), ErrEmpty},
		"EmptyPagesApart": {apart, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c Check
			for i, p := range tc.pages {
				c.Object([]byte("of a response that broke off"))
				c.Retry()
				for _, name := range p.objects {
					c.Object([]byte("namespace"), []byte(name))
				}
				err := c.Next(p.token)
				if last := i == len(tc.pages)-1; last && err != tc.want || !last && err != nil {
					t.Fatalf("page %d: %v, want %v", i, err, tc.want)
				}
			}
		})
	}
}
