// Package edge calls the edge, the service that leads requests from the internet to the sites.
package edge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Client calls the API of the edge. Every method may be repeated.
type Client struct {
	URL  string
	HTTP *http.Client
}

// Reserve reserves an address. The edge answers with the same address for the same key.
func (c *Client) Reserve(ctx context.Context, key string) (address string, err error) {
	answer, err := c.call(ctx, http.MethodPost, "/addresses", key)
	return answer.Address, err
}

// Release gives back the address of a key, if there is one.
func (c *Client) Release(ctx context.Context, key, _ string) error {
	_, err := c.call(ctx, http.MethodDelete, "/addresses", key)
	return err
}

// AddRoute leads the requests for a host through an address. The route becomes active later.
func (c *Client) AddRoute(ctx context.Context, host, address string) error {
	_, err := c.call(ctx, http.MethodPut, "/routes/"+host+"?address="+address, "")
	return err
}

// Active reports whether the route of a host is active.
func (c *Client) Active(ctx context.Context, host string) (bool, error) {
	answer, err := c.call(ctx, http.MethodGet, "/routes/"+host, "")
	return answer.Active, err
}

// RemoveRoute removes the route of a host, if there is one.
func (c *Client) RemoveRoute(ctx context.Context, host string) error {
	_, err := c.call(ctx, http.MethodDelete, "/routes/"+host, "")
	return err
}

type answer struct {
	Address string `json:"address"`
	Active  bool   `json:"active"`
}

func (c *Client) call(ctx context.Context, method, path, key string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.URL+path, nil)
	if err != nil {
		return answer{}, err
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := c.HTTP.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("the edge answers %s", response.Status)
	}
	var a answer
	return a, json.NewDecoder(response.Body).Decode(&a)
}
