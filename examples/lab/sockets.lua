-- What `./dev run` starts without root: the same over kernel sockets on this machine.
addLocal("127.0.0.1:5300", {reusePort=true})
-- example.com is answered from this file; whatever lies in no zone goes to the backend.
millrace.addZone{name="example.com.", file="example.com.zone", statistics=true}
newServer({address="127.0.0.1:5301", name="knotd", checkName="example.net.", checkInterval=1})
getPool(""):setCache(newPacketCache(100000, {maxTTL=86400, staleTTL=60}))

addAction({"blocked.example."}, RCodeAction(DNSRCode.NXDOMAIN))
addAction(AndRule({QTypeRule(DNSQType.ANY), NotRule(TCPRule(true))}), TCAction())

webserver("127.0.0.1:8083")
setSecurityPollSuffix("")
