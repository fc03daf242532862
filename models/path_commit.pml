/* The commit of path tables: put-if-absent of the next version, by transaction/path_commit.py.
 *
 * Three transactions on one table: each is on one alone, and path tables share nothing. A step is
 * one request to the store. A request whose reply is lost was done, or was not, or is done later,
 * while its writer goes on. A crash is a process that takes no further step, which Spin considers
 * at every state. Each -DBROKEN_x takes one guard away, and then the invariant fails that
 * tests/models names. */

#define TXNS 3
#define VERSIONS 5                              /* 0 is there from the beginning */
#ifndef LOST_MAX
#define LOST_MAX 1                              /* _REPLIES_LOST_MAX */
#endif

/* A transaction appends, blindly; or updates the one row that all update; or attaches the table
 * to a lake, whose catalog makes its versions from then on. */
#define APPENDS 0
#define UPDATES 1
#define ATTACHES 2
byte kind[TXNS];

/* The store: whose _delta_log/<v>.json it is, + 1; the version that a request on its way is for
 * (once another one made that version, it makes no difference); and up to where the log was
 * cleaned after a checkpoint, which waits for who follows a version, + 1. */
byte log[VERSIONS], newest;
byte late[TXNS];
byte cleaned, governed, following[TXNS];

/* What transactions know, and what their users were told. */
byte base[TXNS], at[TXNS];                      /* the version read; the version made */
#define COMMITTED 1
#define FAILED 2
#define UNKNOWN 3
byte told[TXNS];

/* The invariants. Never set: the assertion that fails has the name. */
hidden byte once, no_gap, never_replaced, told_committed, told_failed, first_wins;
hidden byte governed_alone;
inline violated(invariant) { assert(invariant) }

#define BOTH(what, x, y) (kind[x] == what && kind[y] == what)
#define OVERTOOK(y, x) (BOTH(UPDATES, x, y) && at[y] > base[x] && at[y] < at[x])
#define THERE(v) (log[v] && v > cleaned)

inline create(x, v) {                           /* Store.put_if_absent, when it arrives */
	if
	:: !THERE(v) && v > cleaned ->
		if :: at[x] -> violated(once) :: else fi;
		if :: v != newest + 1 -> violated(no_gap) :: else fi;
		if :: told[x] == FAILED -> violated(told_failed) :: else fi;
		log[v] = x + 1;
		newest = v;
		at[x] = v;
		following[x] = v;
		if :: kind[x] == ATTACHES && !governed -> governed = v :: else fi;
#ifndef BROKEN_OVERWRITE
		late[0] = 0; late[1] = 0; late[2] = 0;  /* they find it taken */
#endif
		if
		:: OVERTOOK(0, x) || OVERTOOK(1, x) || OVERTOOK(2, x) -> violated(first_wins)
		:: else
		fi;
		if :: governed && governed < v -> violated(governed_alone) :: else fi
	:: v <= cleaned -> violated(no_gap)
#ifdef BROKEN_OVERWRITE
	:: THERE(v) -> violated(never_replaced)
#else
	:: THERE(v)
#endif
	fi
}

#define OWN 1
#define REFUSED 2

proctype Transaction(byte x) {
	byte v, found, replies_lost;

	d_step { base[x] = newest; v = newest }     /* TableLog.latest */
#ifdef BROKEN_FIRST_LOOK
	goto attempt;
#endif
catch_up:                                       /* CommitLoop._catch_up, Rebase.follow */
	atomic {
		d_step {
			if :: cleaned > v -> found = REFUSED; v = newest :: else fi;
			do                                  /* the winners, in their order */
			:: v < newest && !found -> v++;
				if
#ifndef BROKEN_OWN
				:: log[v] == x + 1 -> found = OWN
#endif
#ifndef BROKEN_PROTOCOL                         /* protocol_changed_by_both */
				:: log[v] != x + 1 && BOTH(ATTACHES, x, log[v] - 1) -> found = REFUSED
#endif
#ifndef BROKEN_ROWS                             /* rows_deleted_by_both */
				:: log[v] != x + 1 && BOTH(UPDATES, x, log[v] - 1) -> found = REFUSED
#endif
				:: else
				fi
			:: else -> break
			od;
#ifndef BROKEN_GOVERNED                         /* is_governed, _attaches */
			if
			:: !found && governed && (kind[x] != ATTACHES || base[x] >= governed) ->
				found = REFUSED
			:: else
			fi;
#endif
			following[x] = v + 1
		}
		if
		:: found == OWN -> goto committed
		:: found == REFUSED -> goto failed      /* Conflict, InvalidRequest, CorruptTable */
		:: else
		fi
	}
attempt:                                        /* PathCommitter._put: version v + 1 */
	atomic {
		if
		:: !THERE(v + 1) -> d_step { create(x, v + 1) };
			if
			:: goto committed                   /* CREATED */
			:: goto catch_up                    /* EXISTS: the client sent it twice */
			fi
		:: THERE(v + 1) -> d_step { create(x, v + 1) };
			goto catch_up                       /* EXISTS */
		:: true                                 /* UNKNOWN: it never arrived */
		:: d_step { create(x, v + 1) }          /* UNKNOWN: it did */
		:: !THERE(v + 1) -> late[x] = v + 1       /* UNKNOWN: it is on its way */
		fi;
#ifdef BROKEN_HOPE
		goto committed;
#endif
		replies_lost++
	}
	atomic {                                    /* the look: TableLog.commit_info */
		if
		:: replies_lost <= LOST_MAX && THERE(v + 1) -> goto catch_up
#ifdef BROKEN_NEXT
		:: replies_lost <= LOST_MAX && !THERE(v + 1) -> v++; goto attempt
#else
		:: replies_lost <= LOST_MAX && !THERE(v + 1) -> goto attempt     /* the same again */
#endif
#ifdef BROKEN_GIVE_UP
		:: goto failed
#endif
		:: told[x] = UNKNOWN; goto done         /* OutcomeUnknown: the store is away */
		fi
	}

committed:
	atomic {
		told[x] = COMMITTED;
		if :: at[x] == 0 -> violated(told_committed) :: else fi;
		goto done
	}
failed:
	atomic {
		told[x] = FAILED;
		if :: at[x] -> violated(told_failed) :: else fi
	}
done:
	atomic { following[x] = 0; v = 0; found = 0; replies_lost = 0 }
}

/* A request that was on its way arrives. */
#define ARRIVES(x) :: d_step { late[x] -> create(x, late[x]); late[x] = 0 }
active proctype Network() {
end:	do
	ARRIVES(0) ARRIVES(1) ARRIVES(2)
	od
}

/* log_cleanup.py, after a checkpoint at the newest version: `delta.logRetentionDuration` is
 * longer than any attempt takes, and than any request is on its way. */
#define IN_USE(x) (late[x] || (following[x] && following[x] <= newest))
active proctype Cleanup() {
end:	do
	:: d_step {
		!cleaned && newest && !IN_USE(0) && !IN_USE(1) && !IN_USE(2) -> cleaned = newest }
	od
}

init {
	byte k;
	atomic {                                    /* who is who makes no difference */
		select (k : 0 .. 2); kind[0] = k;
		select (k : k .. 2); kind[1] = k;
		select (k : k .. 2); kind[2] = k; k = 0;
		run Transaction(0); run Transaction(1); run Transaction(2)
	}
}
