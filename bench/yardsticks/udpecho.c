/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The limit of ordinary sockets: a batch in, QR set, the batch out, one thread, one socket.
 *   udpecho ADDRESS [PORT]
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { BATCH = 64, ROOM = 4096, BUFFER = 4 << 20, QR = 0x80, FLAGS = 2 };

static unsigned char messages[BATCH][ROOM];
static struct sockaddr_storage clients[BATCH];
static struct iovec parts[BATCH];
static struct mmsghdr headers[BATCH];

static void fail(const char *what)
{
	fprintf(stderr, "udpecho: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int listen_on(const char *address, const char *port)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_DGRAM }, *found;
	int error = getaddrinfo(address, port, &hints, &found), listener, size = BUFFER;

	if (error) {
		fprintf(stderr, "udpecho: %s port %s: %s\n", address, port, gai_strerror(error));
		exit(1);
	}
	listener = socket(found->ai_family, SOCK_DGRAM, 0);
	if (listener < 0)
		fail("socket");
	/* What a burst needs: without the privilege the system's limit must do. */
	if (setsockopt(listener, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size))
		setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
	if (bind(listener, found->ai_addr, found->ai_addrlen))
		fail(address);
	freeaddrinfo(found);
	return listener;
}

/* Sends a whole batch; a message that the kernel refuses is left out. */
static void answer(int listener, int count)
{
	for (int sent = 0; sent < count;) {
		int taken = sendmmsg(listener, headers + sent, count - sent, 0);

		sent += taken > 0 ? taken : 1;
	}
}

int main(int argc, char **argv)
{
	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: udpecho ADDRESS [PORT]\n");
		return 2;
	}
	int listener = listen_on(argv[1], argc > 2 ? argv[2] : "53");

	for (int i = 0; i < BATCH; i++) {
		headers[i].msg_hdr = (struct msghdr){ .msg_name = &clients[i], .msg_iov = &parts[i], .msg_iovlen = 1 };
		parts[i].iov_base = messages[i];
	}
	for (;;) {
		for (int i = 0; i < BATCH; i++) {
			parts[i].iov_len = ROOM;
			headers[i].msg_hdr.msg_namelen = sizeof clients[i];
		}
		int count = recvmmsg(listener, headers, BATCH, MSG_WAITFORONE, NULL);

		for (int i = 0; i < count; i++) {
			messages[i][FLAGS] |= QR;
			parts[i].iov_len = headers[i].msg_len;
		}
		answer(listener, count);
	}
}
