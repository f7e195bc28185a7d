// Package e2e_test runs the program database on a real control plane. The tests run one after the other, and delete
// their objects, since each program works in all namespaces, and only one may work at a time.
package e2e_test

import (
	"encoding/base64"
	"fmt"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/examples/database/server"
	"github.com/fairlead-io/fairlead/examples/internal/kubetest"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
)

var (
	env      clustertest.Env
	database program.Program
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(database.Main(env.Main(m))) }

// world is a namespace with a user, and a server of databases.
type world struct {
	*kubetest.User
	t      *testing.T
	server *server.Server
	url    string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	env.InstallCRDs(t, clustertest.CRDFiles("../databases.yaml"))
	w := &world{User: kubetest.New(t, env.Config(t), env.Namespace(t)), t: t, server: server.New()}
	served := httptest.NewServer(w.server.Handler())
	t.Cleanup(served.Close)
	w.url = served.URL
	return w
}

// operate runs the program until the test ends.
func (w *world) operate() *program.Process {
	w.t.Helper()
	return database.Start(w.t, program.Options{
		Config: env.Config(w.t), Args: []string{"--server=" + w.url, "--poll=10ms"},
	})
}

func (w *world) create(name string) *unstructured.Unstructured {
	w.t.Helper()
	db := w.Object("example.fairlead.io/v1", "Database", name)
	db.Object["spec"] = map[string]any{"sizeGi": int64(1)}
	w.Create(db)
	return db
}

// remove deletes an object, and waits until the program has let it go.
func (w *world) remove(db *unstructured.Unstructured) {
	w.t.Helper()
	w.Delete(db)
	w.AwaitGone(db)
}

func (w *world) secret(db *unstructured.Unstructured) *unstructured.Unstructured {
	return w.Object("v1", "Secret", db.GetName())
}

// works reports whether the credentials in the Secret are good for a database of the right size.
func (w *world) works(db *unstructured.Unstructured) bool {
	w.t.Helper()
	secret := w.secret(db)
	if !w.Exists(db) || !w.Exists(secret) {
		return false
	}
	size, _, _ := unstructured.NestedInt64(db.Object, "spec", "sizeGi")
	id, _, _ := unstructured.NestedString(db.Object, "status", "database")
	for _, is := range w.server.List() {
		if is.ID == w.data(secret, "database") {
			return is.Password == server.Digest(w.data(secret, "password")) && int64(is.SizeGi) == size && is.ID == id
		}
	}
	return false
}

// data returns a value of a Secret.
func (w *world) data(secret *unstructured.Unstructured, name string) string {
	w.t.Helper()
	text, _, _ := unstructured.NestedString(secret.Object, "data", name)
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(raw)
}

func (w *world) awaitWorks(what string, db *unstructured.Unstructured) {
	w.t.Helper()
	w.Until(what, func() bool { return w.works(db) })
}

func (w *world) awaitReady(db *unstructured.Unstructured, status, reason string) {
	w.t.Helper()
	w.Await(fmt.Sprintf("Ready=%s %s", status, reason), db, func(content map[string]any) bool {
		return kubetest.HasCondition(content, "Ready", status, reason)
	})
}

// Programs are killed while they work: in the end there is one database for each object, none was ever made beside
// them, and none is left when the objects are gone.
func TestKilled(t *testing.T) {
	w := newWorld(t)
	const n = 5
	var all []*unstructured.Unstructured
	for i := range n {
		all = append(all, w.create(fmt.Sprintf("db-%d", i)))
	}
	for made := 1; made <= n; made++ {
		p := w.operate()
		w.Until("another database is made", func() bool { return w.server.Made() >= made })
		p.Kill()
	}
	last := w.operate()
	for _, db := range all {
		w.awaitWorks("each has its database", db)
	}
	last.Stop()
	if got := w.server.List(); len(got) != n || w.server.Made() != n {
		t.Errorf("for %d objects %d databases were made, of which there are %v", n, w.server.Made(), got)
	}
	for _, db := range all {
		w.Delete(db)
	}
	for left := n - 1; left >= 0; left-- {
		p := w.operate()
		w.Until("another database is gone", func() bool { return len(w.server.List()) <= left })
		p.Kill()
	}
	w.operate()
	for _, db := range all {
		w.AwaitGone(db)
	}
	if got := w.server.List(); len(got) != 0 {
		t.Errorf("without objects, there is %v", got)
	}
}

// The program corrects what has changed at the server.
func TestDrift(t *testing.T) {
	w := newWorld(t)
	w.operate()
	db := w.create("orders")
	w.awaitWorks("it works", db)
	w.awaitReady(db, "True", "AsAskedFor")
	is := w.server.List()[0]
	w.server.Put(server.State{ID: is.ID, Note: is.Note, SizeGi: 100, Password: is.Password})
	w.awaitWorks("the size is as it was", db)
	w.server.Put(server.State{ID: is.ID, Note: is.Note, SizeGi: 1, Password: server.Digest("guessed")})
	w.awaitWorks("the password is as it was", db)
	w.Modify(db, func(content map[string]any) { content["spec"].(map[string]any)["sizeGi"] = int64(2) })
	w.awaitWorks("the size is the new one", db)
	w.remove(db)
}

// A user whose Secret is deleted gets another password.
func TestRotation(t *testing.T) {
	w := newWorld(t)
	w.operate()
	db := w.create("orders")
	w.awaitWorks("it works", db)
	old := w.secret(db)
	if !w.Exists(old) {
		t.Fatal("there is no secret")
	}
	before := w.data(old, "password")
	w.Delete(old)
	w.awaitWorks("it works again", db)
	secret := w.secret(db)
	if !w.Exists(secret) || w.data(secret, "password") == before {
		t.Error("the password is the old one")
	}
	w.remove(db)
}

// The program tells of a database that was lost, and does not replace it by an empty one.
func TestLost(t *testing.T) {
	w := newWorld(t)
	w.operate()
	db := w.create("orders")
	w.awaitWorks("it works", db)
	is := w.server.List()[0]
	w.server.Remove(is.ID)
	w.awaitReady(db, "False", "Lost")
	if got := w.server.List(); len(got) != 0 {
		t.Errorf("there is another one: %v", got)
	}
	w.server.Put(is) // it was restored
	w.awaitReady(db, "True", "AsAskedFor")
	w.server.Remove(is.ID)
	w.remove(db)
}

// The program does not touch a Secret that belongs to somebody else.
func TestTaken(t *testing.T) {
	w := newWorld(t)
	w.operate()
	secret := w.Object("v1", "Secret", "orders")
	secret.Object["stringData"] = map[string]any{"password": "mine"}
	w.Create(secret)
	db := w.create("orders")
	w.awaitReady(db, "False", "Taken")
	if !w.Exists(secret) || w.data(secret, "password") != "mine" || secret.GetOwnerReferences() != nil {
		t.Errorf("got %v", secret)
	}
	w.Delete(secret)
	w.awaitReady(db, "True", "AsAskedFor")
	w.remove(db)
}
