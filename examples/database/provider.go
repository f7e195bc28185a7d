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

// errGone is matched when the server does not have what is asked for.
var errGone = errors.New("the server does not have it")

// provider calls a server of databases.
type provider struct {
	url  string
	http *http.Client
}

// create makes a database; for alloc.Once, which has asked find before.
func (p *provider) create(ctx context.Context, key string) (id string, err error) {
	var made server.State
	err = p.do(ctx, http.MethodPost, "/databases", server.State{Note: key}, &made)
	return made.ID, err
}

// find looks for the database that was made with a key; for alloc.Find.
func (p *provider) find(ctx context.Context, key string) (id string, found bool, err error) {
	var all []server.State
	if err := p.do(ctx, http.MethodGet, "/databases?note="+url.QueryEscape(key), nil, &all); err != nil || len(all) == 0 {
		return "", false, err
	}
	return all[0].ID, true, nil
}

// release gives back the database of a key; for alloc.Release, which may not know how it is called, nor whether there is
// one.
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

// settle makes a database as it should be, and says whether that needed a change.
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
