package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// saver saves stores to the files of one directory, and resumes them from there. A file belongs to one store at a time:
// the next owner waits until the previous one has saved for the last time. A nil saver saves no stores.
type saver struct {
	dir      string
	identity string // of the cluster
	every    time.Duration
	logger   *slog.Logger

	mu    sync.Mutex        // a leaf
	files map[string]*claim // by name: the claim to a file until its last save
}

// claim is the right of one store to save to a file. A nil claim is that of a store which is not saved.
type claim struct {
	saver  *saver
	store  *Store
	scopes func() []string // Options.Scope of stores whose files may hold the same objects with another content
	never  bool            // the store is not saved (Content.Keep); the claim is for removeOthers alone

	over  bool            // the store is not used any more; guarded by saver.mu
	saved chan struct{}   // closed after the last save
	after <-chan struct{} // saved of the previous owner of the file; nil if there is none
}

// defaultSaveEvery is the default of CacheOptions.SaveEvery.
const defaultSaveEvery = 5 * time.Minute

// clusterIdentity identifies a cluster without a request, by its address and its certificate authority. A cluster that
// is set up again at the same address has another authority.
func clusterIdentity(cfg *rest.Config) (string, error) {
	authority := cfg.CAData
	if len(authority) == 0 && cfg.CAFile != "" {
		var err error
		if authority, err = os.ReadFile(cfg.CAFile); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%s%s %x", cfg.Host, cfg.APIPath, sha256.Sum256(authority)), nil
}

// newSaver returns a saver for the directory of CacheOptions, or nil if there is none.
func newSaver(opt *CacheOptions) (*saver, error) {
	if opt.Dir == "" {
		return nil, nil //nolint:nilnil // a nil saver saves no stores
	}
	identity, err := clusterIdentity(opt.Config)
	if err != nil {
		return nil, err
	}
	return &saver{
		dir: opt.Dir, identity: identity, every: opt.SaveEvery, logger: opt.Logger, files: map[string]*claim{},
	}, nil
}

// claim returns the claim of a store to its file. scopes returns the scopes of stores whose files may hold the same
// objects with another content. claim returns nil for a store of some slots, and if the file belongs to a store in use,
// as after a change of namespaces.
func (v *saver) claim(s *Store, scopes func() []string) *claim {
	if v == nil || s.opt.Shard != "" {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	name := s.opt.fileName()
	before := v.files[name]
	if before != nil && !before.over {
		return nil
	}
	c := &claim{saver: v, store: s, scopes: scopes, never: s.opt.Content.Keep != nil, saved: make(chan struct{})}
	if before != nil {
		c.after = before.saved
	}
	v.files[name] = c
	return c
}

// end allows another store to claim the file. It must be called when the store gets no new users; the last save may
// follow.
func (c *claim) end() {
	if c == nil {
		return
	}
	c.saver.mu.Lock()
	defer c.saver.mu.Unlock()
	c.over = true
}

// release gives the file up after the last save.
func (c *claim) release() {
	if c == nil {
		return
	}
	c.saver.mu.Lock()
	defer c.saver.mu.Unlock()
	close(c.saved)
	if name := c.store.opt.fileName(); c.saver.files[name] == c {
		delete(c.saver.files, name)
	}
}

// isFree waits until the previous owner of the file has saved. It reports false if ctx ends first, and for a nil claim.
func (c *claim) isFree(ctx context.Context) bool {
	if c == nil {
		return false
	}
	if c.after == nil {
		return true
	}
	select {
	case <-c.after:
		return true
	case <-ctx.Done():
		return false
	}
}

// removeOthers deletes the files that an earlier run saved for the same objects with another content, which may contain
// fields that are dropped now. It keeps the files of stores of this run.
func (c *claim) removeOthers(ctx context.Context) {
	opt := &c.store.opt
	if len(opt.Content.Drop) == 0 && !opt.Content.Metadata {
		return
	}
	bases := map[string]bool{}
	for _, scope := range c.scopes() {
		bases[opt.fileBase(scope)] = true
	}
	if err := c.saver.remove(bases); err != nil { // logged without the lock
		c.saver.logger.ErrorContext(ctx, "cannot remove saved state of another content", "resource",
			opt.Resource.String(), "error", err)
	}
}

// remove deletes the files with one of the names, whatever their content, unless a store has a claim to it.
func (v *saver) remove(bases map[string]bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	files, err := os.ReadDir(v.dir)
	for _, file := range files {
		base, saved := strings.CutSuffix(file.Name(), fileSuffix)
		if at := strings.LastIndexByte(base, '.'); at >= 0 && !bases[base] {
			base = base[:at] // without the hash of the content
		}
		if !saved || !bases[base] || v.files[file.Name()] != nil {
			continue
		}
		err = errors.Join(err, os.Remove(filepath.Join(v.dir, file.Name())))
	}
	return err
}

// resume fills the store with the wanted namespaces from disk, before its source starts. If the file is unusable, the
// source lists instead.
func (c *claim) resume(ctx context.Context, wanted func(namespace string) bool) {
	v, resource := c.saver, c.store.opt.Resource.String()
	err := c.store.loadScopes(v.dir, v.identity, wanted)
	switch {
	case err == nil:
		v.logger.InfoContext(ctx, "resuming from saved state", "resource", resource, "objects", c.store.Len(),
			"version", c.store.Version())
	case !errors.Is(err, fs.ErrNotExist):
		v.logger.WarnContext(ctx, "saved state is unusable, listing instead", "resource", resource, "error", err)
	}
}

// extent detects changes of a store. The version alone does not suffice: after a rollback the same version may come
// again with other content.
type extent struct {
	version          string
	applied, commits int64
}

func extentOf(s *Store) extent {
	return extent{s.Version(), s.intake.stats.applied.Load(), s.intake.stats.commits.Load()}
}

// saveRepeatedly saves the store every CacheOptions.SaveEvery, if it has changed. The returned function stops that and,
// if last is true, saves once more.
func (c *claim) saveRepeatedly(ctx context.Context) (end func(last bool)) {
	v, saved := c.saver, extentOf(c.store)
	save := func() {
		now := extentOf(c.store)
		if now == saved || now.version == "" { // unchanged, or not listed yet
			return
		}
		if err := c.store.Save(v.dir, v.identity); err != nil {
			v.logger.ErrorContext(ctx, "cannot save", "resource", c.store.opt.Resource.String(), "error", err)
			return
		}
		saved = now
	}
	ctx, cancel := context.WithCancel(ctx)
	var saving sync.WaitGroup
	saving.Go(func() {
		tick := time.NewTicker(v.every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				save()
			case <-ctx.Done():
				return
			}
		}
	})
	return func(last bool) {
		cancel()
		saving.Wait()
		if last {
			save()
		}
	}
}
