package pages

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"sync"
)

//go:embed static templates
var files embed.FS

const staticPath = "/console/static/"

// assets are the files that pages load. The version of a file derives from its content, so browsers can cache it
// indefinitely and load a new version after an update.
type assets struct {
	fs.FS
	versions map[string]string
}

var static = sync.OnceValue(func() assets {
	dir, err := fs.Sub(files, "static")
	if err != nil {
		panic(err) // the directory is embedded
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

// staticURL returns the URL of a file.
func staticURL(name string) string { return staticPath + name + "?v=" + static().versions[name] }

// serveStatic serves the files. A file requested with the version of another replica, as during an update, must not be
// cached.
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
