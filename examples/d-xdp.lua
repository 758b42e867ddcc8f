-- d: ours: every queue of the right interfaces, found from the address or the route.
addLocal("192.0.2.1:53", {xdp=true})  addLocal("[2001:db8::1]:53", {xdp=true})
newServer({address="192.0.2.2:53", xdp=true, checkName="example.com.", checkInterval=1, maxCheckFailures=3, rise=2, pool="auth", order=1, weight=1})
getPool("auth"):setCache(newPacketCache(100000, {maxTTL=86400, staleTTL=60, temporaryFailureTTL=60}))
setACL({"192.0.2.0/24", "2001:db8::/32", "127.0.0.0/8"})
addAction({"example.com.", "example.net."}, PoolAction("auth"))
addAction(QNameSuffixRule("blocked.example."), RCodeAction(DNSRCode.NXDOMAIN))
addAction(AndRule({QTypeRule(DNSQType.ANY), NotRule(TCPRule(true))}), TCAction())
addAction(NetmaskGroupRule("192.0.2.66/32"), DropAction())
setServerPolicy(leastOutstanding)   -- also firstAvailable, roundrobin, wrandom, whashed, chashed, orderedWrandUntag, race, hedge
setUDPTimeout(2)  setSecurityPollSuffix("")
