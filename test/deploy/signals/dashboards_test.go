package signals

import (
	"strings"
	"testing"
)

// A dashboard can be imported as it is, and again: it has a uid of its own and no id, and its data source is a variable.
func TestDashboardsCanBeImported(t *testing.T) {
	t.Parallel()
	uids, titles := map[string]bool{}, map[string]bool{}
	all := dashboards(t)
	for _, d := range all {
		if want := "tundish-" + strings.TrimSuffix(d.file, ".json"); d.UID != want || uids[d.UID] {
			t.Errorf("%s has the uid %q, want %s", d.file, d.UID, want)
		}
		if d.Title == "" || titles[d.Title] {
			t.Errorf("%s has the title %q, want one of its own", d.file, d.Title)
		}
		uids[d.UID], titles[d.Title] = true, true
		if d.ID != nil || d.SchemaVersion == 0 {
			t.Errorf("%s has the id %v and the schema version %d, want none and one of the classic model", d.file, d.ID, d.SchemaVersion)
		}
		first := d.Templating.List[0]
		if first.Name != "datasource" || first.Type != "datasource" || first.Query != "prometheus" {
			t.Errorf("%s has no variable for its data source: %+v", d.file, first)
		}
	}
	for _, d := range all {
		for _, link := range d.Links {
			if uid, ok := strings.CutPrefix(link.URL, "/d/"); !ok || !uids[uid] {
				t.Errorf("%s has a link to %s, which is no dashboard here", d.file, link.URL)
			}
		}
	}
}

// Each panel has a title, a unit and queries of the data source that the reader has chosen, with variables that exist.
func TestPanelsAreComplete(t *testing.T) {
	t.Parallel()
	for _, d := range dashboards(t) {
		known := map[string]bool{"__rate_interval": true} // Grafana's own
		for _, v := range d.Templating.List {
			known[v.Name] = true
			if v.Type == "query" && (v.Datasource == nil || *v.Datasource != chosen) {
				t.Errorf("%s: the variable %s asks %v, want %v", d.file, v.Name, v.Datasource, chosen)
			}
		}
		ids, titles := map[int]bool{}, map[string]bool{}
		row := ""
		for _, p := range d.Panels {
			where := d.file + ": " + p.Title
			if p.ID == 0 || ids[p.ID] {
				t.Errorf("%s has the id %d, want one of its own", where, p.ID)
			}
			ids[p.ID] = true
			if p.Type == "row" {
				row = p.Title
				continue
			}
			if p.Title == "" || titles[row+"/"+p.Title] {
				t.Errorf("%s has no title of its own in the row %q", where, row)
			}
			titles[row+"/"+p.Title] = true
			if p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 || p.Datasource == nil || *p.Datasource != chosen {
				t.Errorf("%s: unit %q, %d queries of %v; want a unit, and queries of %v", where, p.FieldConfig.Defaults.Unit, len(p.Targets), p.Datasource, chosen)
			}
			refs := map[string]bool{}
			for _, target := range p.Targets {
				if target.Expr == "" || target.RefID == "" || refs[target.RefID] || target.Datasource == nil || *target.Datasource != chosen {
					t.Errorf("%s: the query %q is %q of %v", where, target.RefID, target.Expr, target.Datasource)
				}
				refs[target.RefID] = true
				for _, name := range variable.FindAllStringSubmatch(target.Expr, -1) {
					if !known[name[1]] {
						t.Errorf("%s: there is no variable $%s", where, name[1])
					}
				}
			}
		}
	}
}

var chosen = source{"prometheus", "${datasource}"}

// Panels lie within the 24 columns of Grafana, and none lies on another.
func TestPanelsDoNotOverlap(t *testing.T) {
	t.Parallel()
	const columns = 24
	for _, d := range dashboards(t) {
		taken := map[[2]int]string{}
		for _, p := range d.Panels {
			g := p.GridPos
			if g.X < 0 || g.Y < 0 || g.W < 1 || g.H < 1 || g.X+g.W > columns {
				t.Errorf("%s: %s lies at %+v, want it within %d columns", d.file, p.Title, g, columns)
			}
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					if other, ok := taken[[2]int{x, y}]; ok {
						t.Fatalf("%s: %s lies on %s", d.file, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}
