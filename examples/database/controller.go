package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/conditions"
	"github.com/fairlead-io/fairlead/reconcile"
)

const (
	slot  = "database"                     // of package alloc
	label = "example.fairlead.io/database" // of the Secrets of this operator; it watches no others
)

// errTaken is returned when a Secret of that name exists and has another owner.
var errTaken = errors.New("the secret belongs to somebody else")

// databases is the controller.
type databases struct {
	c        *client.Client
	provider *provider
	poll     time.Duration // interval at which the server's state is checked for drift
}

// Reconcile implements reconcile.Reconciler.
func (r *databases) Reconcile(ctx context.Context, db *Database) (reconcile.Result, error) {
	says := conditions.Of(db)
	id, err := alloc.Once(ctx, r.c, db, slot, r.provider.create, alloc.Find(r.provider.find))
	if err != nil {
		return reconcile.Retry(err)
	}
	password, err := r.password(ctx, db, id)
	if err == nil {
		says.True("Credentials", "Stored", "they are in the secret %s", db.Name)
		_, err = r.provider.settle(ctx, id, db.Spec.SizeGi, password)
	}
	switch {
	case errors.Is(err, errTaken):
		says.False("Credentials", "Taken", "the secret %s belongs to somebody else", db.Name)
	case errors.Is(err, errGone): // the data is lost; an administrator must decide whether to create a new database
		says.False("Provisioned", "Lost", "the server has lost the database %s; restore it, or delete this object", id)
	case err != nil:
		return reconcile.Retry(err)
	default:
		says.True("Provisioned", "Exists", "it is the database %s", id)
	}
	if err := client.ModifyStatus(ctx, r.c, db, func(db *Database) error {
		db.Status.Database = id
		says.Into(&db.Status.Conditions)
		return nil
	}); err != nil {
		return reconcile.Retry(err)
	}
	return reconcile.After(r.poll), nil
}

// Cleanup implements reconcile.Cleaner. The garbage collector deletes the Secret.
func (r *databases) Cleanup(ctx context.Context, db *Database) (reconcile.Result, error) {
	return reconcile.Retry(alloc.Release(ctx, r.c, db, slot, r.provider.release, alloc.Find(r.provider.find)))
}

// password returns the password in the Secret of a Database. If there is no Secret, it creates one with a new
// password. The password is stored before the server gets it, so the server never has a password that is not in the
// Secret.
func (r *databases) password(ctx context.Context, db *Database, id string) (string, error) {
	secret, err := client.Get[corev1.Secret](ctx, r.c, client.KeyOf(db))
	if apierrors.IsNotFound(err) {
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: db.Namespace, Name: db.Name, Labels: map[string]string{label: db.Name},
			},
			Immutable: new(true),
			Data:      map[string][]byte{"database": []byte(id), "user": []byte(id), "password": []byte(rand.Text())},
		}
		if err := reconcile.Own(r.c, db, secret); err != nil {
			return "", err
		}
		err = r.c.Create(ctx, secret)
	}
	if err != nil {
		return "", fmt.Errorf("cannot store the password: %w", err)
	}
	if !metav1.IsControlledBy(secret, db) {
		return "", errTaken
	}
	return string(secret.Data["password"]), nil
}
