package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// The methods of this file break a control plane, for tests of what its clients then do. Each returns when what it says
// has happened. They fail with [ErrStopped] after Stop.

// KillAPIServer ends kube-apiserver at once, so that its connections break. Nothing happens when it does not run.
func (c *Cluster) KillAPIServer(ctx context.Context) error {
	return c.do(ctx, "kill kube-apiserver", func() error {
		c.endAPIServer(0)
		return nil
	})
}

// StopAPIServer ends kube-apiserver as an update of it would: it finishes what it is answering, then closes watches.
// When it needs longer than three seconds it is killed.
func (c *Cluster) StopAPIServer(ctx context.Context) error {
	return c.do(ctx, "stop kube-apiserver", func() error {
		c.endAPIServer(apiServerGrace)
		return nil
	})
}

// StartAPIServer starts kube-apiserver on the same port again and returns when it is ready. Nothing happens when it
// runs.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	return c.do(ctx, "start kube-apiserver", func() error {
		if c.apiRun != nil {
			return nil
		}
		return c.startAPIServer(ctx)
	})
}

// RestartAPIServer is KillAPIServer and StartAPIServer. The new server has an empty watch cache: after a Compact, it no
// longer knows versions that the old one could still have served from memory.
func (c *Cluster) RestartAPIServer(ctx context.Context) error {
	return c.do(ctx, "restart kube-apiserver", func() error {
		c.endAPIServer(0)
		return c.startAPIServer(ctx)
	})
}

// PauseAPIServer suspends kube-apiserver: connections stay, and nothing is answered until ResumeAPIServer.
func (c *Cluster) PauseAPIServer(ctx context.Context) error {
	return c.signalAPIServer(ctx, syscall.SIGSTOP)
}

// ResumeAPIServer lets kube-apiserver continue after PauseAPIServer.
func (c *Cluster) ResumeAPIServer(ctx context.Context) error {
	return c.signalAPIServer(ctx, syscall.SIGCONT)
}

func (c *Cluster) signalAPIServer(ctx context.Context, s syscall.Signal) error {
	return c.do(ctx, "signal kube-apiserver", func() error {
		if c.apiRun == nil {
			return errors.New("kube-apiserver does not run")
		}
		return c.apiRun.signal(s)
	})
}

// PauseEtcd suspends etcd: requests to the API server that need it hang until ResumeEtcd.
func (c *Cluster) PauseEtcd(ctx context.Context) error { return c.signalEtcd(ctx, syscall.SIGSTOP) }

// ResumeEtcd lets etcd continue after PauseEtcd.
func (c *Cluster) ResumeEtcd(ctx context.Context) error { return c.signalEtcd(ctx, syscall.SIGCONT) }

func (c *Cluster) signalEtcd(ctx context.Context, s syscall.Signal) error {
	return c.do(ctx, "signal etcd", func() error {
		if c.etcdRun == nil {
			return errors.New("etcd does not run")
		}
		return c.etcdRun.signal(s)
	})
}

// Compact makes etcd forget all versions but the newest, whose resource version it returns. The API server's watch
// cache may still know some: see RestartAPIServer.
func (c *Cluster) Compact(ctx context.Context) (resourceVersion int64, err error) {
	err = c.do(ctx, "compact", func() error {
		if resourceVersion, err = c.etcd.revision(ctx); err != nil {
			return err
		}
		return c.etcd.compact(ctx, resourceVersion)
	})
	return resourceVersion, err
}

// Revision returns etcd's newest revision: no object has a higher resource version.
func (c *Cluster) Revision(ctx context.Context) (resourceVersion int64, err error) {
	err = c.do(ctx, "read revision", func() error {
		resourceVersion, err = c.etcd.revision(ctx)
		return err
	})
	return resourceVersion, err
}

// Snapshot copies etcd's data into the new directory to. Etcd is down meanwhile, for about a second; the API server
// keeps running and then needs a moment to find etcd again.
func (c *Cluster) Snapshot(ctx context.Context, to string) error {
	return c.do(ctx, "take snapshot", func() error {
		if err := os.Mkdir(to, 0o700); err != nil {
			return err
		}
		// At once: asked to end, etcd would wait for the API server's watches. What it has acknowledged is in its files.
		c.endEtcd(0)
		err := os.CopyFS(to, os.DirFS(c.etcd.dataDir()))
		return errors.Join(err, c.startEtcd(ctx))
	})
}

// Restore replaces etcd's data with a snapshot and restarts both servers: resource versions go back to what they were.
// The snapshot stays as it is.
func (c *Cluster) Restore(ctx context.Context, from string) error {
	return c.do(ctx, "restore snapshot", func() error {
		// Copied before anything is stopped, so that a snapshot that cannot be read changes nothing.
		restored := c.etcd.dataDir() + ".restore"
		if err := os.RemoveAll(restored); err != nil {
			return err
		}
		if err := os.CopyFS(restored, os.DirFS(from)); err != nil {
			return err
		}
		c.endAPIServer(0)
		c.endEtcd(0)
		if err := errors.Join(os.RemoveAll(c.etcd.dataDir()), os.Rename(restored, c.etcd.dataDir())); err != nil {
			return err
		}
		// Written in order to be read by the owner only, whatever the snapshot's modes are.
		if err := os.Chmod(c.etcd.dataDir(), 0o700); err != nil {
			return err
		}
		if err := c.startEtcd(ctx); err != nil {
			return err
		}
		return c.startAPIServer(ctx)
	})
}

// RotateServingCertificate gives kube-apiserver a new key and certificate of the same authority, and returns when it
// shows it to new connections. Open connections are not closed.
func (c *Cluster) RotateServingCertificate(ctx context.Context) error {
	return c.do(ctx, "rotate serving certificate", func() error {
		if c.apiRun == nil {
			return errors.New("kube-apiserver does not run")
		}
		if err := c.api.pki.newServing(); err != nil {
			return err
		}
		want, err := readCert(c.api.pki.servingCert())
		if err != nil {
			return err
		}
		return poll(ctx, c.timeout, c.apiRun.done, func(ctx context.Context) error {
			got, err := c.api.served(ctx)
			if err != nil {
				return err
			}
			if !bytes.Equal(got.Raw, want.Raw) {
				return errors.New("the old certificate is still served")
			}
			return nil
		})
	})
}

// Log returns the path of a server's log; server is "etcd" or "kube-apiserver".
func (c *Cluster) Log(server string) string { return filepath.Join(c.dir, server+".log") }

// do runs f while no other operation runs.
func (c *Cluster) do(ctx context.Context, what string, f func() error) error {
	err := ctx.Err()
	if err == nil {
		select {
		case c.op <- struct{}{}:
			defer func() { <-c.op }()
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot %s: %w", what, err)
	}
	if c.stopped {
		return fmt.Errorf("cannot %s: %w", what, ErrStopped)
	}
	if err := f(); err != nil {
		return fmt.Errorf("cannot %s: %w", what, err)
	}
	return nil
}
