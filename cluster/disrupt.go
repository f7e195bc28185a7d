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

// The methods of this file disrupt a control plane to test its clients. Each returns when its effect is complete. After
// Stop they fail with [ErrStopped].

// KillAPIServer kills kube-apiserver, which breaks its connections. It does nothing if the server does not run.
func (c *Cluster) KillAPIServer(ctx context.Context) error {
	return c.do(ctx, "kill kube-apiserver", func() error {
		c.endAPIServer(0)
		return nil
	})
}

// StopAPIServer stops kube-apiserver gracefully, as for an update: it finishes its requests and then closes watches.
// After three seconds it is killed.
func (c *Cluster) StopAPIServer(ctx context.Context) error {
	return c.do(ctx, "stop kube-apiserver", func() error {
		c.endAPIServer(apiServerGrace)
		return nil
	})
}

// StartAPIServer starts kube-apiserver on the same port and returns when it is ready. It does nothing if the server
// runs.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	return c.do(ctx, "start kube-apiserver", func() error {
		if c.apiRun != nil {
			return nil
		}
		return c.startAPIServer(ctx)
	})
}

// RestartAPIServer is KillAPIServer followed by StartAPIServer. The new server has an empty watch cache. After a
// Compact it does not know versions that the old one could still serve from memory.
func (c *Cluster) RestartAPIServer(ctx context.Context) error {
	return c.do(ctx, "restart kube-apiserver", func() error {
		c.endAPIServer(0)
		return c.startAPIServer(ctx)
	})
}

// PauseAPIServer suspends kube-apiserver. Connections stay open without answers until ResumeAPIServer.
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
			return errors.New("kube-apiserver is not running")
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
			return errors.New("etcd is not running")
		}
		return c.etcdRun.signal(s)
	})
}

// Compact removes all versions from etcd except the newest, and returns its resource version. The watch cache of the
// API server may still have older versions; see RestartAPIServer.
func (c *Cluster) Compact(ctx context.Context) (resourceVersion int64, err error) {
	err = c.do(ctx, "compact", func() error {
		if resourceVersion, err = c.etcd.revision(ctx); err != nil {
			return err
		}
		return c.etcd.compact(ctx, resourceVersion)
	})
	return resourceVersion, err
}

// Revision returns etcd's newest revision. No object has a higher resource version.
func (c *Cluster) Revision(ctx context.Context) (resourceVersion int64, err error) {
	err = c.do(ctx, "read revision", func() error {
		resourceVersion, err = c.etcd.revision(ctx)
		return err
	})
	return resourceVersion, err
}

// Snapshot copies etcd's data to the new directory to. etcd is down for about a second. The API server keeps running
// and then needs a moment to reconnect.
func (c *Cluster) Snapshot(ctx context.Context, to string) error {
	return c.do(ctx, "take snapshot", func() error {
		if err := os.Mkdir(to, 0o700); err != nil {
			return err
		}
		// Kill etcd: a graceful stop would wait for the API server's watches. Acknowledged writes are in its files.
		c.endEtcd(0)
		err := os.CopyFS(to, os.DirFS(c.etcd.dataDir()))
		return errors.Join(err, c.startEtcd(ctx))
	})
}

// Restore replaces etcd's data with a snapshot and restarts the servers. Resource versions go back to those of the
// snapshot. The snapshot is not modified.
func (c *Cluster) Restore(ctx context.Context, from string) error {
	return c.do(ctx, "restore snapshot", func() error {
		// The copy comes before the stop, so that an unreadable snapshot has no effect.
		restored := c.etcd.dataDir() + ".restore"
		if err := os.RemoveAll(restored); err != nil {
			return err
		}
		if err := os.CopyFS(restored, os.DirFS(from)); err != nil {
			return err
		}
		// Controllers would believe their caches, which are newer than the snapshot.
		hasKubelet := c.endKubelet != nil
		if hasKubelet {
			c.endKubelet()
		}
		c.endManager()
		c.endAPIServer(0)
		c.endEtcd(0)
		if err := errors.Join(os.RemoveAll(c.etcd.dataDir()), os.Rename(restored, c.etcd.dataDir())); err != nil {
			return err
		}
		// Only the owner may read the data, whatever the modes of the snapshot are.
		if err := os.Chmod(c.etcd.dataDir(), 0o700); err != nil {
			return err
		}
		if err := c.startEtcd(ctx); err != nil {
			return err
		}
		if err := c.startAPIServer(ctx); err != nil {
			return err
		}
		if err := c.startManager(ctx); err != nil {
			return err
		}
		if hasKubelet {
			return c.startKubelet(ctx)
		}
		return nil
	})
}

// RotateServingCertificate issues a new key and certificate for kube-apiserver from the same authority. It returns when
// new connections get the new certificate. Open connections are not closed.
func (c *Cluster) RotateServingCertificate(ctx context.Context) error {
	return c.do(ctx, "rotate serving certificate", func() error {
		if c.apiRun == nil {
			return errors.New("kube-apiserver is not running")
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

// Log returns the path of a server's log; server is "etcd", "kube-apiserver" or "kube-controller-manager".
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
