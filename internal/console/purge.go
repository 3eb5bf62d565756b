package console

import (
	"net/http"
	"net/url"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/opsview"
)

// askPurge shows what a purge would drop, and asks for the bucket's name.
func askPurge(v *visit) {
	name := httpapi.BucketName{Bucket: v.r.PathValue("bucket")}
	count, err := call(v, httpapi.PurgeBucket, httpapi.BucketPurge{BucketName: name, PurgeRequest: httpapi.PurgeRequest{DryRun: true}})
	if err != nil {
		v.fail(err)
		return
	}
	v.render(http.StatusOK, "purge", "Purge "+name.Bucket, count)
}

// purge drops the waiting jobs of a bucket, whose name is given once more.
func purge(v *visit) {
	name := httpapi.BucketName{Bucket: v.r.PathValue("bucket")}
	var after *opsview.Purge
	confirm := v.r.PostFormValue("confirm")
	after, err := call(v, httpapi.PurgeBucket, httpapi.BucketPurge{BucketName: name, PurgeRequest: httpapi.PurgeRequest{Confirm: &confirm, KeepLater: v.r.PostFormValue("keep") != ""}})
	v.acted("../"+url.PathEscape(name.Bucket), "purge", err, func() bool { return after.Purged+after.Left > 0 })
}
