package main

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for schedule, good := range map[string]bool{
		"*/5 * * * *": true, "@hourly": true, "@every 90s": true, "CRON_TZ=Europe/Berlin 0 6 * * *": true,
		"": false, "every day": false, "* * * *": false, "61 * * * *": false, "0 0 31 2 *": false,
	} {
		if _, err := parse(schedule); (err == nil) != good {
			t.Errorf("%q: got %v", schedule, err)
		}
	}
}

// What latest finds by looking back is what counting every time from the beginning finds.
func TestLatest(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		s, err := parse(rapid.SampledFrom([]string{
			"* * * * *", "*/7 * * * *", "*/5 9 * * 1-5", "0 0 1 * *", "30 2 29 2 *", "@every 90s", "@every 1h",
		}).Draw(t, "schedule"))
		if err != nil {
			t.Fatal(err)
		}
		after := begin.Add(time.Duration(rapid.IntRange(0, 1<<20).Draw(t, "after")) * time.Second)
		until := after.Add(time.Duration(rapid.IntRange(-60, 1<<rapid.IntRange(0, 22).Draw(t, "size")).Draw(t, "length")) *
			time.Second)
		var want time.Time
		for next := s.Next(after); !next.IsZero() && !next.After(until); next = s.Next(next) {
			want = next
		}
		if got := latest(s, after, until); !got.Equal(want) {
			t.Fatalf("after %s until %s: got %s, not %s", after, until, got, want)
		}
	})
}

func TestLatestOfManyYears(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 1, 1, 0, 0, 30, 0, time.UTC)
	for _, schedule := range []string{"* * * * *", "@every 1s"} { // a thousand million seconds: counting would not end
		s, err := parse(schedule)
		if err != nil {
			t.Fatal(err)
		}
		if got := latest(s, until.AddDate(-50, 0, 0), until); until.Sub(got) >= time.Minute {
			t.Errorf("%s: got %s", schedule, got)
		}
	}
}
