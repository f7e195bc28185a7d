package serve

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// requests bounds the concurrent requests. Only HTTP/2 allows more requests than connections: a client can open many
// streams and read no response. A client may use at most as many as remain free.
type requests struct {
	most    int
	refused prometheus.Counter

	mu      sync.Mutex
	all     int
	clients map[string]int
}

func newRequests(most int) *requests {
	return &requests{
		most: most, clients: make(map[string]int),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_http_requests_refused_total",
			Help: "Requests refused because there were too many on the connections of their client, or of all.",
		}),
	}
}

// begin reports whether the client may start another request. If so, the caller must call end.
func (r *requests) begin(client string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clients[client] >= r.most-r.all {
		r.refused.Inc()
		return false
	}
	r.all++
	r.clients[client]++
	return true
}

func (r *requests) end(client string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all--
	if r.clients[client]--; r.clients[client] == 0 {
		delete(r.clients, client)
	}
}
