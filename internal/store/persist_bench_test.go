package store_test

import (
	"os"
	"testing"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// BenchmarkPersistence saves and loads 10,000 pods.
func BenchmarkPersistence(b *testing.B) {
	const n = 10_000
	s, _ := pods(b, source.Protobuf, n, store.Options{})
	b.Run("save", func(b *testing.B) {
		dir := b.TempDir()
		b.ReportAllocs()
		for b.Loop() {
			if err := s.Save(dir, "cluster"); err != nil {
				b.Fatal(err)
			}
		}
		files, err := os.ReadDir(dir)
		if err != nil || len(files) != 1 {
			b.Fatal(files, err)
		}
		info, err := files[0].Info()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(info.Size())/n, "bytes/object")
	})
	dir := b.TempDir()
	if err := s.Save(dir, "cluster"); err != nil {
		b.Fatal(err)
	}
	b.Run("load", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l := store.New(store.Options{Kind: podKind, Namespaced: true})
			if err := l.Load(dir, "cluster"); err != nil || l.Len() != n {
				b.Fatal(l.Len(), err)
			}
			l.Close()
		}
	})
}
