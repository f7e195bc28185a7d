package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/simulation/schedule"
)

// starter starts the processes of the subject in one schedule. It is safe for concurrent use.
type starter struct {
	driver  *Driver
	run     *schedule.Run
	program program
	target  *url.URL
	direct  http.RoundTripper // to the API server
	clients kubernetes.Interface

	printed  output
	requests atomic.Int64
}

func newStarter(d *Driver, run *schedule.Run, to *rest.Config) (*starter, error) {
	target, err := url.Parse(to.Host)
	if err != nil {
		return nil, err
	}
	direct, err := rest.TransportFor(to)
	if err != nil {
		return nil, err
	}
	clients, err := kubernetes.NewForConfig(to)
	if err != nil {
		return nil, err
	}
	p := program{command: d.o.Command, outside: len(d.o.Outside) > 0, dir: d.dir}
	return &starter{driver: d, run: run, program: p, target: target, direct: direct, clients: clients}, nil
}

// start runs a process until it ends, or until own ends. ctx is that of the schedule.
func (s *starter) start(ctx, own context.Context, of *schedule.Process) error {
	as := s.driver.account.Load()
	sent, err := s.process(own, of, as)
	if err != nil && !sent && as == nil { // it may know the configuration in a Pod only
		again, failed := newAccount(s.driver.dir)
		if failed != nil {
			return errors.Join(err, failed)
		}
		_, err = s.process(own, of, again)
	}
	if ctx.Err() == nil {
		s.free(ctx, of.Locks())
	}
	return err
}

// free makes locks look as if they had expired, so that the next process need not wait for that.
func (s *starter) free(ctx context.Context, locks []schedule.Lock) {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, schedule.LeaderAnnotation,
		`{"holderIdentity":"","leaseDurationSeconds":1,"leaderTransitions":0}`)
	for _, l := range locks {
		in, name := l.Name.Namespace, l.Name.Name
		switch l.Resource.Resource {
		case "configmaps":
			_, _ = s.clients.CoreV1().ConfigMaps(in).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		case "endpoints":
			_, _ = s.clients.CoreV1().Endpoints(in).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		default:
			_ = s.clients.CoordinationV1().Leases(in).Delete(ctx, name, metav1.DeleteOptions{})
		}
	}
}

// process runs a process, with an account as in a Pod, and reports whether it has sent a request to the API server. The
// driver keeps the account of a process that has.
func (s *starter) process(own context.Context, of *schedule.Process, as *account) (sent bool, err error) {
	var any atomic.Bool
	api := s.run.Transport(of, roundTripper(func(r *http.Request) (*http.Response, error) {
		s.requests.Add(1)
		if any.Store(true); as != nil {
			s.driver.account.CompareAndSwap(nil, as)
		}
		return s.direct.RoundTrip(r)
	}))
	proxy, err := newProxy(&s.driver.ports, as.certificate(), s.target, api, of.Client.Transport)
	if err != nil {
		return false, err
	}
	defer proxy.close()
	err = s.program.run(own, proxy, as, &s.printed, of.OnSuspend)
	return any.Load(), err
}
