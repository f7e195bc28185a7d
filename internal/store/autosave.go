package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

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

// claimFile assigns a file to an entry for saving. It assigns none to an entry with a shard, or if a live entry has the
// file, as after a change of namespaces. The caller holds c.mu.
func (c *Cache) claimFile(e *cacheEntry) {
	if c.opt.Dir == "" || e.key.shard != "" {
		return
	}
	before := c.files[e.store.opt.fileName()]
	if before != nil && !before.gone {
		return
	}
	if before != nil {
		e.after = before.saved
	}
	e.saved = make(chan struct{})
	c.files[e.store.opt.fileName()] = e
}

// fileIsFree waits until the previous owner of the file has saved. It reports false if ctx ends first.
func (c *Cache) fileIsFree(ctx context.Context, e *cacheEntry) bool {
	if e.after == nil {
		return true
	}
	select {
	case <-e.after:
		return true
	case <-ctx.Done():
		return false
	}
}

// removeOthers deletes the files that an earlier run saved for the same objects with another content, which may contain
// fields that are dropped now. It keeps the files of stores of this run.
func (c *Cache) removeOthers(ctx context.Context, e *cacheEntry) {
	if content := &e.store.opt.Content; len(content.Drop) == 0 && !content.Metadata {
		return
	}
	bases := map[string]bool{}
	for _, form := range []struct{ json, metadata bool }{{true, false}, {false, false}, {true, true}} {
		key := e.key
		key.json, key.metadata = form.json, form.metadata
		bases[e.store.opt.fileBase(key.scope())] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	files, err := os.ReadDir(c.opt.Dir)
	for _, file := range files {
		base, saved := strings.CutSuffix(file.Name(), fileSuffix)
		if at := strings.LastIndexByte(base, '.'); at >= 0 && !bases[base] {
			base = base[:at] // without the hash of the content
		}
		if !saved || !bases[base] || c.files[file.Name()] != nil {
			continue
		}
		err = errors.Join(err, os.Remove(filepath.Join(c.opt.Dir, file.Name())))
	}
	if err != nil {
		c.opt.Logger.ErrorContext(ctx, "cannot remove saved state of another content", "resource", e.key.resource.String(),
			"error", err)
	}
}

func (c *Cache) leaveFile(e *cacheEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaveFileLocked(e)
}

func (c *Cache) leaveFileLocked(e *cacheEntry) {
	close(e.saved)
	if c.files[e.store.opt.fileName()] == e {
		delete(c.files, e.store.opt.fileName())
	}
}

// resume fills the store of an entry from disk before its source starts. If the file is unusable, the source lists
// instead.
func (c *Cache) resume(ctx context.Context, e *cacheEntry) {
	e.scopes.Lock()
	defer e.scopes.Unlock()
	wanted := map[string]bool{}
	for _, st := range e.source.Status() {
		wanted[st.Namespace] = true
	}
	err := e.store.loadScopes(c.opt.Dir, c.identity, func(namespace string) bool { return wanted[namespace] })
	switch {
	case err == nil:
		c.opt.Logger.InfoContext(ctx, "resuming from saved state", "resource", e.key.resource.String(),
			"objects", e.store.Len(), "version", e.store.Version())
	case !errors.Is(err, fs.ErrNotExist):
		c.opt.Logger.WarnContext(ctx, "saved state is unusable, listing instead", "resource", e.key.resource.String(),
			"error", err)
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

// saveNowAndThen saves the store of an entry every CacheOptions.SaveEvery, if it has changed. The returned function
// stops that and, if last is true, saves once more.
func (c *Cache) saveNowAndThen(ctx context.Context, e *cacheEntry) (end func(last bool)) {
	saved := extentOf(e.store)
	save := func() {
		now := extentOf(e.store)
		if now == saved || now.version == "" { // unchanged, or not listed yet
			return
		}
		if err := e.store.Save(c.opt.Dir, c.identity); err != nil {
			c.opt.Logger.ErrorContext(ctx, "cannot save", "resource", e.key.resource.String(), "error", err)
			return
		}
		saved = now
	}
	ctx, cancel := context.WithCancel(ctx)
	var saving sync.WaitGroup
	saving.Go(func() {
		tick := time.NewTicker(c.opt.SaveEvery)
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
