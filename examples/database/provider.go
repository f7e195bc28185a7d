package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/fairlead-io/fairlead/examples/database/server"
)

// errGone is returned when the server does not have the database.
var errGone = errors.New("the server does not have it")

// provider is a client of a database server.
type provider struct {
	url  string
	http *http.Client
}

// create creates a database. It is the create function of alloc.Once, which calls find first.
func (p *provider) create(ctx context.Context, key string) (id string, err error) {
	var made server.State
	err = p.do(ctx, http.MethodPost, "/databases", server.State{Note: key}, &made)
	return made.ID, err
}

// find returns the database that was created with a key. It is the argument of alloc.Find.
func (p *provider) find(ctx context.Context, key string) (id string, found bool, err error) {
	var all []server.State
	if err := p.do(ctx, http.MethodGet, "/databases?note="+url.QueryEscape(key), nil, &all); err != nil || len(all) == 0 {
		return "", false, err
	}
	return all[0].ID, true, nil
}

// release deletes the database of a key. It is the release function of alloc.Release, which passes an empty id when
// the ID is unknown; then the database may not exist.
func (p *provider) release(ctx context.Context, key, id string) error {
	if id == "" {
		var found bool
		var err error
		if id, found, err = p.find(ctx, key); err != nil || !found {
			return err
		}
	}
	err := p.do(ctx, http.MethodDelete, "/databases/"+url.PathEscape(id), nil, nil)
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}

// settle updates a database to the given size and password. It reports whether an update was needed.
func (p *provider) settle(ctx context.Context, id string, sizeGi int, password string) (changed bool, err error) {
	var is server.State
	path := "/databases/" + url.PathEscape(id)
	if err := p.do(ctx, http.MethodGet, path, nil, &is); err != nil {
		return false, err
	}
	if is.SizeGi == sizeGi && is.Password == server.Digest(password) {
		return false, nil
	}
	return true, p.do(ctx, http.MethodPut, path, server.State{SizeGi: sizeGi, Password: password}, nil)
}

func (p *provider) do(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := p.http.Do(r)
	if err != nil {
		return fmt.Errorf("cannot ask the server: %w", err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	switch {
	case err != nil:
		return fmt.Errorf("cannot read the server's answer: %w", err)
	case response.StatusCode == http.StatusNotFound:
		return errGone
	case response.StatusCode >= http.StatusBadRequest:
		return fmt.Errorf("cannot %s %s: the server answers %s", method, path, response.Status)
	case out == nil:
		return nil
	}
	return json.Unmarshal(raw, out)
}
