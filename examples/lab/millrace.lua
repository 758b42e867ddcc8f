-- What `./dev run` starts as root: clients and backend over AF_XDP, on every queue.
addLocal("192.0.2.1:53", {xdp=true})
addLocal("[2001:db8::1]:53", {xdp=true})
-- example.com is answered from this file; whatever lies in no zone goes to the backend.
millrace.addZone{name="example.com.", file="example.com.zone", statistics=true}
newServer({address="198.51.100.2:53", name="knotd", xdp=true, checkName="example.net.", checkInterval=1})
getPool(""):setCache(newPacketCache(100000, {maxTTL=86400, staleTTL=60}))

setACL({"192.0.2.0/24", "2001:db8::/32", "127.0.0.0/8"})
addAction({"blocked.example."}, RCodeAction(DNSRCode.NXDOMAIN))
addAction(AndRule({QTypeRule(DNSQType.ANY), NotRule(TCPRule(true))}), TCAction())

webserver("127.0.0.1:8083")
setSecurityPollSuffix("")
