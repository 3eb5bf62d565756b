package workers

import (
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// serveNames is a server of DNS. See resolverFor.
func serveNames(conn net.PacketConn, answers map[string]string) {
	b := make([]byte, 1<<10)
	for {
		n, from, err := conn.ReadFrom(b)
		if err != nil {
			return
		}
		var query dnsmessage.Message
		if query.Unpack(b[:n]) != nil || len(query.Questions) == 0 {
			continue
		}
		if reply := answerName(&query, answers); reply != nil {
			_, _ = conn.WriteTo(reply, from)
		}
	}
}

func answerName(query *dnsmessage.Message, answers map[string]string) []byte {
	q := query.Questions[0]
	reply := dnsmessage.Message{Header: dnsmessage.Header{ID: query.ID, Response: true, RecursionAvailable: true}, Questions: query.Questions[:1]}
	switch text := answers[strings.ToLower(q.Name.String())]; text {
	case "":
		reply.RCode = dnsmessage.RCodeServerFailure
	case "none":
		reply.RCode = dnsmessage.RCodeNameError
	case "dead":
		return nil
	default:
		for one := range strings.FieldsSeq(text) {
			addr := netip.MustParseAddr(one)
			header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: dnsmessage.ClassINET}
			switch {
			case addr.Is4() && q.Type == dnsmessage.TypeA:
				reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}})
			case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
				reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
			}
		}
	}
	packed, err := reply.Pack()
	if err != nil {
		return nil
	}
	return packed
}
