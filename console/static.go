package console

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"sync"
)

const staticPath = "/console/static/"

// assets are the files that pages load, with a version of each that follows from its content: browsers keep them for as
// long as they like, and ask for others after an update.
type assets struct {
	fs.FS
	versions map[string]string
}

var static = sync.OnceValue(func() assets {
	dir, err := fs.Sub(files, "static")
	if err != nil {
		panic(err) // it is embedded
	}
	a := assets{dir, map[string]string{}}
	err = fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := fs.ReadFile(dir, name)
		sum := sha256.Sum256(raw)
		a.versions[name] = hex.EncodeToString(sum[:8])
		return err
	})
	if err != nil {
		panic(err) // as above
	}
	return a
})

// staticURL is where a page finds a file.
func staticURL(name string) string { return staticPath + name + "?v=" + static().versions[name] }

// serveStatic serves them. What is asked for by the version of another replica, as during an update, is not to be kept.
func serveStatic() http.Handler {
	served := http.StripPrefix(staticPath, http.FileServerFS(static().FS))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keep := "no-store"
		if v := static().versions[r.URL.Path[len(staticPath):]]; v != "" && r.URL.Query().Get("v") == v {
			keep = "public, max-age=31536000, immutable"
		}
		w.Header().Set("Cache-Control", keep)
		served.ServeHTTP(w, r)
	})
}
