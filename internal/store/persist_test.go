package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

func TestSaveAndLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	opt := store.Options{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}}
	s := newStore(t, opt)
	one, two := s.Sink("one"), s.Sink("two")
	x := thing{ns: "one", name: "a", uid: "u1", version: 5, labels: `"color":"red"`}
	list(t, one, 9, x)
	list(t, two, 12, thing{ns: "two", name: "b", uid: "u2", version: 6})
	put(t, s, thing{ns: "one", name: "own", uid: "u3", version: 50}) // the overlay is not saved
	for range 2 {
		if err := s.Save(dir, "cluster"); err != nil {
			t.Fatal(err)
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%d files, want one", len(files))
	}

	l := newStore(t, opt)
	if err := l.Load(dir, "cluster"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"one/a@5", "two/b@6"}, read(l)); d != "" {
		t.Errorf("loaded (-want +got):\n%s", d)
	}
	if got, ok := l.Get(x.key()); !ok || !bytes.Equal(got.Raw(), x.json()) {
		t.Error("loaded bytes differ from the saved ones")
	}
	if k := l.Sink("one").Known(); k != (source.Known{Version: "9", Count: 1}) {
		t.Errorf("a source finds %+v, want to resume at 9", k)
	}
	if l.HasSynced() {
		t.Error("synced although the saved state is not confirmed")
	}
	for _, ns := range []string{"one", "two"} {
		if l.HasSynced() {
			t.Error("synced although one namespace has not caught up")
		}
		l.Sink(ns).Report(source.Status{Phase: source.Watching, Reason: source.ReasonWatching, Synced: true})
	}
	if !l.HasSynced() {
		t.Error("not synced although all scopes have caught up")
	}
	c := l.Subscribe(store.SubscribeOptions{From: store.FromNow})
	drain(c)
	x.version = 20
	apply(t, l.Sink("one"), source.Modified, x)
	if d := cmp.Diff([]string{"MODIFIED one/a@20<5"}, summary(drain(c))); d != "" {
		t.Error(d)
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	save := func(t *testing.T) (dir, file string) {
		dir = t.TempDir()
		s := newStore(t, store.Options{})
		var things []thing
		for i := range 50 {
			things = append(things, obj(fmt.Sprint("o", i), fmt.Sprint("u", i), 5+i))
		}
		list(t, s.Sink(""), 100, things...)
		if err := s.Save(dir, "cluster"); err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return dir, filepath.Join(dir, files[0].Name())
	}
	for reason, damage := range map[string]func([]byte) []byte{
		"one bit":     func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"cut":         func(b []byte) []byte { return b[:len(b)-10] },
		"empty":       func([]byte) []byte { return nil },
		"other magic": func(b []byte) []byte { b[0] = 'x'; return b },
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			dir, file := save(t)
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, damage(b), 0o600); err != nil {
				t.Fatal(err)
			}
			s := newStore(t, store.Options{})
			if err := s.Load(dir, "cluster"); !errors.Is(err, store.ErrNotSaved) || s.Len() != 0 {
				t.Errorf("error %v and %d objects", err, s.Len())
			}
		})
	}
	dir, _ := save(t)
	if err := newStore(t, store.Options{}).Load(dir, "other"); !errors.Is(err, store.ErrNotSaved) {
		t.Errorf("another cluster: %v", err)
	}
	if err := newStore(t, store.Options{}).Load(t.TempDir(), "cluster"); !errors.Is(err, store.ErrNotSaved) ||
		!errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := newStore(t, store.Options{}).Save(filepath.Join(dir, "none"), "cluster"); err == nil {
		t.Error("saved to a missing directory")
	}
}

// TestLoadCutAnywhere: a file that a crash has cut at any byte is refused.
func TestLoadCutAnywhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newStore(t, store.Options{})
	list(t, s.Sink(""), 9, obj("a", "u1", 5), obj("b", "u2", 6))
	if err := s.Save(dir, "cluster"); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) {
		if err := os.WriteFile(files[0], whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		l := store.New(store.Options{})
		if err := l.Load(dir, "cluster"); !errors.Is(err, store.ErrNotSaved) || l.Len() != 0 {
			t.Errorf("cut to %d of %d bytes: error %v and %d objects", n, len(whole), err, l.Len())
		}
		l.Close()
	}
}

// FuzzLoad: no input makes Load panic or allocate without bound.
func FuzzLoad(f *testing.F) {
	s := store.New(store.Options{})
	defer s.Close()
	r := s.Sink("").Replace()
	if err := r.Put(obj("a", "u1", 5).object()); err != nil {
		f.Fatal(err)
	}
	r.Commit(source.Commit{Version: "9"})
	dir := f.TempDir()
	if err := s.Save(dir, "c"); err != nil {
		f.Fatal(err)
	}
	files, _ := os.ReadDir(dir)
	b, err := os.ReadFile(filepath.Join(dir, files[0].Name()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[:len(b)-4])
	f.Add([]byte("fairlead store 1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = store.ReadSaved(bytes.NewReader(data), "c")
	})
}

// Without a directory no file is written, not even in the working directory of the program.
func TestNoDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	s := newStore(t, store.Options{})
	list(t, s.Sink(""), 9)
	if err := s.Save("", "here"); err == nil {
		t.Error("saved nowhere")
	}
	if err := s.Load("", "here"); !errors.Is(err, store.ErrNotSaved) {
		t.Errorf("loaded from nowhere: %v", err)
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("files: %v, %v", left, err)
	}
}
