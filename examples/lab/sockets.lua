-- What `./dev run` starts without root: the same over kernel sockets on this machine.
addLocal("127.0.0.1:5300", {reusePort=true})
newServer({address="127.0.0.1:5301", name="knotd", checkName="example.com.", checkInterval=1})
getPool(""):setCache(newPacketCache(100000, {maxTTL=86400, staleTTL=60}))

addAction({"blocked.example."}, RCodeAction(DNSRCode.NXDOMAIN))
addAction(AndRule({QTypeRule(DNSQType.ANY), NotRule(TCPRule(true))}), TCAction())

webserver("127.0.0.1:8083")
setSecurityPollSuffix("")
